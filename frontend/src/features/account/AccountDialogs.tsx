import type { AccountAsk } from './ask'
import { LinkForm, UnlinkForm } from './LinkForms'
import { PasswordForm } from './PasswordForm'
import { SecondFactorEnd, SecondFactorSetUp } from './SecondFactorForms'

/** The form for what was asked of a person's own account. */
export function AccountDialogs(props: { ask: AccountAsk; secondFactor: boolean; onClose: () => void }) {
  const { ask, ...rest } = props
  if (typeof ask === 'object')
    return 'link' in ask ? <LinkForm provider={ask.link} {...rest} /> : <UnlinkForm link={ask.unlink} {...rest} />
  if (ask === 'password') return <PasswordForm {...rest} />
  return ask === 'set-up' ? <SecondFactorSetUp onClose={rest.onClose} /> : <SecondFactorEnd onClose={rest.onClose} />
}
