import { useQuery } from '@tanstack/react-query'

import { errorText } from '~/api/errors'
import type { AuthProvider, ProviderLink, SessionUser } from '~/api/types'
import { providersQuery } from '~/features/session/queries'
import { time } from '~/lib/format'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { Loading, Notice } from '~/ui/Notice'

import type { AccountAsk } from './ask'
import { linksQuery } from './queries'

const NO_PASSWORD = 'You have no password to prove the change with. An operator changes the links of your account.'

/** The identity providers by which a person signs in, or could; nothing where there are none, and for an API key. */
export function LinkedProviders({ user, onAsk }: { user: SessionUser; onAsk: (ask: AccountAsk) => void }) {
  const isPerson = user.person !== null
  const providers = useQuery({ ...providersQuery, enabled: isPerson })
  const links = useQuery({ ...linksQuery, enabled: isPerson })
  const error = providers.error ?? links.error
  const linked = links.data?.links ?? []
  const others = (providers.data ?? []).filter(({ id }) => !linked.some((link) => link.provider_id === id))
  if (!isPerson || (!error && linked.length === 0 && others.length === 0)) return null
  const closed = user.person?.has_password ? null : NO_PASSWORD
  return (
    <Card title="Identity providers" note={closed ?? 'A linked provider signs you in without your password here.'}>
      {error && <Notice tone="bad">{errorText(error)}</Notice>}
      {links.data ? (
        <ul aria-label="Identity providers" className="divide-y divide-line">
          {linked.map((link) => (
            <Linked key={`${link.issuer} ${link.subject}`} link={link} closed={closed} onAsk={onAsk} />
          ))}
          {others.map((provider) => (
            <Unlinked key={provider.id} provider={provider} closed={closed} onAsk={onAsk} />
          ))}
        </ul>
      ) : (
        !error && <Loading what="identity providers" />
      )}
    </Card>
  )
}

type Row = { closed: string | null; onAsk: (ask: AccountAsk) => void }
const ROW = 'flex flex-wrap items-center justify-between gap-2 py-3 first:pt-0 last:pb-0'

function Linked({ link, closed, onAsk }: Row & { link: ProviderLink }) {
  const name = link.name ?? link.issuer
  return (
    <li className={ROW}>
      <div className="min-w-0 flex-1 basis-60">
        <h3 className="text-sm font-medium break-all">{name}</h3>
        <p className="text-xs break-all text-muted">
          Linked with {link.email} ({link.subject} there) since {time(link.linked_at)}.
          {link.name === null && ' This installation no longer knows the provider.'}
        </p>
      </div>
      <Button
        variant="danger"
        aria-label={`End the link with ${link.email} at ${name}`}
        disabledReason={closed}
        onClick={() => {
          onAsk({ unlink: link })
        }}
      >
        End link
      </Button>
    </li>
  )
}

function Unlinked({ provider, closed, onAsk }: Row & { provider: AuthProvider }) {
  return (
    <li className={ROW}>
      <div className="min-w-0 flex-1 basis-60">
        <h3 className="text-sm font-medium">{provider.name}</h3>
        <p className="text-xs text-muted">Not linked.</p>
      </div>
      <Button
        aria-label={`Link ${provider.name}`}
        disabledReason={closed}
        onClick={() => {
          onAsk({ link: provider })
        }}
      >
        Link
      </Button>
    </li>
  )
}
