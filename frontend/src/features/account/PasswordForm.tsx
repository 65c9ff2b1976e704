import { longest, shortest } from '~/api/bounds'
import { zPasswordChangeWritable } from '~/api/generated/zod/zod.gen'
import { submits, useAppForm, wrong } from '~/shared/form'
import { Dialog } from '~/ui/Dialog'

import { CODE, PASSWORD_AGAIN, ProofEnd } from './ProofParts'
import { changePassword } from './queries'
import { useProof } from './use-proof'

const NEW = zPasswordChangeWritable.shape.new_password
const FEWEST = shortest(NEW)

type Values = { password: string; code: string; newPassword: string; again: string }

/** What is wrong with a new password, as far as can be said without asking the API. */
export function passwordErrors({ newPassword, again }: Pick<Values, 'newPassword' | 'again'>) {
  return wrong({
    newPassword:
      newPassword !== '' && newPassword.length < FEWEST ? `At least ${String(FEWEST)} characters.` : undefined,
    again: again !== '' && again !== newPassword ? 'This is another password.' : undefined,
  })
}

/** Changes the password of who is signed in. `secondFactor`: they have one, so a code is asked for too. */
export function PasswordForm({ secondFactor, onClose }: { secondFactor: boolean; onClose: () => void }) {
  const change = useProof(changePassword, { done: 'Password changed; all other sessions ended', onDone: onClose })
  const form = useAppForm({
    defaultValues: { password: '', code: '', newPassword: '', again: '' } satisfies Values,
    validators: { onChange: ({ value }) => passwordErrors(value) },
    onSubmit: ({ value: { password, code, newPassword } }) => {
      change.mutate({ password, code, newPassword })
    },
  })
  return (
    <Dialog onClose={onClose} title="Change password" description="All your other sessions end with it.">
      <form onSubmit={submits(form)}>
        <form.AppField name="password">{(field) => <field.Text {...PASSWORD_AGAIN} />}</form.AppField>
        {secondFactor && <form.AppField name="code">{(field) => <field.Text {...CODE} />}</form.AppField>}
        <form.AppField name="newPassword">
          {(field) => (
            <field.Text
              label="New password"
              type="password"
              autoComplete="new-password"
              required
              maxLength={longest(NEW)}
              hint={`At least ${String(FEWEST)} characters, and not your email.`}
            />
          )}
        </form.AppField>
        <form.AppField name="again">
          {(field) => <field.Text label="The same again" type="password" autoComplete="new-password" required />}
        </form.AppField>
        <ProofEnd refused={change.refused} busy={change.isPending} label="Change password" onClose={onClose} />
      </form>
    </Dialog>
  )
}
