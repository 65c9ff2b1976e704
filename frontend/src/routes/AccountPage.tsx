import { useSuspenseQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'

import type { SessionUser } from '~/api/types'
import type { AccountAsk } from '~/features/account/ask'
import { LinkedProviders } from '~/features/account/LinkedProviders'
import { OwnSessions } from '~/features/account/OwnSessions'
import { SecurityCard } from '~/features/account/SecurityCard'
import { Keys } from '~/features/keys/Keys'
import { organizationsQuery } from '~/features/session/queries'
import { useSessionUser } from '~/features/session/use-session'
import { lazyDialog } from '~/shared/lazy-dialog'
import { PageHeader } from '~/shared/PageHeader'
import { Card } from '~/ui/Card'

const AccountDialogs = lazyDialog(() => import('~/features/account/AccountDialogs'), 'AccountDialogs')

export function AccountPage() {
  const user = useSessionUser()
  const [ask, setAsk] = useState<AccountAsk | null>(null)
  return (
    <>
      <PageHeader title="Your account" note="Who you are here, what you sign in with, and where you are signed in." />
      <div className="grid gap-4">
        <div className="grid gap-4 lg:grid-cols-2">
          <Profile user={user} />
          <SecurityCard user={user} onAsk={setAsk} />
        </div>
        <LinkedProviders user={user} onAsk={setAsk} />
        <OwnSessions />
        {user.role !== null && user.project_id === null && <Keys own />}
      </div>
      {ask && (
        <AccountDialogs
          ask={ask}
          secondFactor={user.person?.second_factor ?? false}
          onClose={() => {
            setAsk(null)
          }}
        />
      )}
    </>
  )
}

function Profile({ user }: { user: SessionUser }) {
  const { organizations } = useSuspenseQuery(organizationsQuery).data
  const home = organizations.find(({ id }) => id === user.organization_id)
  return (
    <Card
      title="Profile"
      note={user.person === null ? 'You signed in with an API key. It belongs to:' : 'The person who is signed in.'}
    >
      <dl className="grid gap-4 sm:grid-cols-2">
        <Fact name="Name">{user.person?.name || user.name}</Fact>
        <Fact name="Email">{user.email}</Fact>
        <Fact name="Organisation">{home?.name ?? 'none'}</Fact>
        <Fact name="Role there">
          {user.role ?? 'none'}
          {user.operator && ', in an organisation of operators'}
        </Fact>
      </dl>
    </Card>
  )
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div className="min-w-0">
      <dt className="text-xs text-muted">{name}</dt>
      <dd className="text-sm font-medium">{children}</dd>
    </div>
  )
}
