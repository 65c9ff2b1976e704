import { useSuspenseQuery } from '@tanstack/react-query'

import type { SessionUser } from '~/api/types'

import { type Need, refusal } from './access'
import { sessionQuery } from './queries'

/** Who is signed in; for what is drawn below the console's frame, which has asked for it before. */
export function useSessionUser(): SessionUser {
  return useSuspenseQuery(sessionQuery).data.user
}

/** Why who is signed in may not do something, as a button's `disabledReason`; null where they may. */
export function useRefusal(need: Need): string | null {
  return refusal(useSessionUser(), need)
}
