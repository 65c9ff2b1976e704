import type { AccountAsk } from './ask'
import { PasswordForm } from './PasswordForm'
import { SecondFactorEnd, SecondFactorSetUp } from './SecondFactorForms'

/** The form for what was asked of a person's own account. */
export function AccountDialogs(props: { ask: AccountAsk; secondFactor: boolean; onClose: () => void }) {
  const { ask, onClose } = props
  if (ask === 'password') return <PasswordForm secondFactor={props.secondFactor} onClose={onClose} />
  return ask === 'set-up' ? <SecondFactorSetUp onClose={onClose} /> : <SecondFactorEnd onClose={onClose} />
}
