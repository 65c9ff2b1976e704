import { ApiError, errorText } from '~/api/errors'
import type { Wait } from '~/shared/use-seconds-left'

/** What was asked for last: email and password, or the code that they were right for. */
export type Step = 'password' | 'code'

/** Why signing in failed. `next`: the step to go on with; `wait`: in which no other attempt is looked at. */
export type SignInRefusal = { text: string | null; next: Step; wait: Wait | null }

const WRONG: Record<Step, string> = {
  password: 'The email or the password is not right. Check both and try again.',
  code: 'The code is not right, or was used already: each counts once. Wait for the next one, or use a recovery code.',
}

/** `now`: ms, as `Date.now`. */
export function signInRefusal(error: unknown, step: Step, now: number): SignInRefusal {
  if (!(error instanceof ApiError)) return { text: errorText(error), next: step, wait: null }
  if (error.code === 'CODE_REQUIRED') return { text: null, next: 'code', wait: null }
  if (error.status === 401) return { text: WRONG[step], next: step, wait: null }
  if (error.status === 429 && error.retryAfter !== undefined) {
    const why =
      error.code === 'TOO_MANY_ATTEMPTS'
        ? 'Too many attempts to sign in have failed, for this email or from your address.'
        : 'Too many requests came at once.'
    return { text: why, next: step, wait: { from: now, until: now + error.retryAfter * 1000 } }
  }
  return { text: errorText(error), next: step, wait: null }
}
