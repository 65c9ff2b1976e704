import type { AuthProvider, ProviderLink } from '~/api/types'

import { ProofForm } from './ProofForm'
import { beginLink, endLink, linksKey, type Proof } from './queries'
import { useProof } from './use-proof'

type Common = { secondFactor: boolean; onClose: () => void }

const visit = (url: string) => {
  window.location.assign(url)
}

/** Asks for the password, then leaves for the provider, which leads back to the page of the account. */
export function LinkForm({ provider, go = visit, ...props }: Common & { provider: AuthProvider; go?: typeof visit }) {
  const begin = useProof((proof: Proof) => beginLink(provider.id, proof), {
    done: `Sign in at ${provider.name} now`,
    onDone: ({ url }) => {
      go(url)
    },
  })
  return (
    <ProofForm
      {...props}
      proof={begin}
      title={`Link ${provider.name}`}
      description={`You sign in at ${provider.name} next. Whoever signs in there signs in here as you from then on, without your password and without the second factor that you have here.`}
      label={`Go to ${provider.name}`}
    />
  )
}

/** Ends a link with an identity provider, and the other sessions that came by it. */
export function UnlinkForm({ link, ...props }: Common & { link: ProviderLink }) {
  const end = useProof((proof: Proof) => endLink(link, proof), {
    done: 'The link has ended',
    invalidate: [linksKey],
    onDone: props.onClose,
  })
  return (
    <ProofForm
      {...props}
      proof={end}
      title={`End the link with ${link.name ?? link.issuer}`}
      description={`${link.email} there does not sign in as you any more. Your other sessions that were opened by the provider end.`}
      label="End link"
      danger
    />
  )
}
