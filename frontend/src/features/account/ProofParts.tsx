import { longest } from '~/api/bounds'
import { zTotpCode } from '~/api/generated/zod/zod.gen'
import type { SignInRefusal } from '~/features/session/sign-in-refusal'
import { useSecondsLeft } from '~/shared/use-seconds-left'
import { Button } from '~/ui/Button'
import { Notice } from '~/ui/Notice'

/** The end of a form that asks for a password or a code again: what was refused, and the button. */
export function ProofEnd({
  refused,
  busy,
  label,
  danger = false,
  onClose,
}: {
  refused: SignInRefusal | null
  busy: boolean
  label: string
  danger?: boolean
  onClose: () => void
}) {
  const left = useSecondsLeft(refused?.wait ?? null)
  return (
    <>
      {refused?.text && (
        <div className="mb-3">
          <Notice tone={refused.wait === null ? 'bad' : 'warn'} role="alert">
            {refused.text}
          </Notice>
        </div>
      )}
      <div className="flex flex-wrap justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button
          variant={danger ? 'danger' : 'primary'}
          type="submit"
          busy={busy}
          disabledReason={left > 0 ? `Try again in ${String(left)} s.` : null}
        >
          {left > 0 ? `${label}, in ${String(left)} s` : label}
        </Button>
      </div>
    </>
  )
}

/** What the field says in which a person types their password again. */
export const PASSWORD_AGAIN = {
  label: 'Your password',
  type: 'password',
  autoComplete: 'current-password',
  required: true,
} as const

/** What the field says in which a person types a code of their second factor. */
export const CODE = {
  label: 'Code',
  autoComplete: 'one-time-code',
  spellCheck: false,
  required: true,
  maxLength: longest(zTotpCode.shape.code),
  className: 'font-mono',
  hint: 'Six digits of your authenticator, or a recovery code.',
} as const
