import { useSuspenseQuery, useQuery } from '@tanstack/react-query'
import { useState } from 'react'

import { Keys } from '~/features/keys/Keys'
import type { MemberAsk } from '~/features/members/ask'
import { leaveRefusal } from '~/features/members/can'
import { Invitations } from '~/features/members/Invitations'
import { Members } from '~/features/members/Members'
import { membersQuery } from '~/features/members/queries'
import { RoleGuide } from '~/features/members/RoleGuide'
import { OrganizationQuotas } from '~/features/quotas/Quotas'
import { refusal } from '~/features/session/access'
import { organizationsQuery } from '~/features/session/queries'
import { useSessionUser } from '~/features/session/use-session'
import { lazyDialog } from '~/shared/lazy-dialog'
import { PageHeader } from '~/shared/PageHeader'
import { Badge } from '~/ui/Badge'
import { Button } from '~/ui/Button'
import { Notice } from '~/ui/Notice'

const MemberDialogs = lazyDialog(() => import('~/features/members/MemberForms'), 'MemberDialogs')

export function OrganizationPage() {
  const user = useSessionUser()
  const { organizations } = useSuspenseQuery(organizationsQuery).data
  const orgId = user.organization_id
  const closed = refusal(user, { least: 'viewer', whole: true })
  if (orgId === null || closed !== null)
    return (
      <>
        <PageHeader title="Organisation" />
        <Notice tone="warn">{closed}</Notice>
      </>
    )
  const name = organizations.find(({ id }) => id === orgId)?.name ?? orgId
  return <OrganizationParts key={orgId} orgId={orgId} name={name} />
}

function OrganizationParts({ orgId, name }: { orgId: string; name: string }) {
  const user = useSessionUser()
  const members = useQuery(membersQuery(orgId)).data?.members ?? []
  const [ask, setAsk] = useState<MemberAsk | null>(null)
  return (
    <>
      <PageHeader
        above="Organisation"
        title={name}
        badge={
          user.operator && <Badge title="It sees the computes and rollouts of all organisations.">operators</Badge>
        }
        note={
          <>
            Its id is <code>{orgId}</code>.
          </>
        }
        actions={
          <Button
            disabledReason={leaveRefusal(user, members)}
            onClick={() => {
              setAsk({ what: 'leave' })
            }}
          >
            Leave
          </Button>
        }
      />
      <div className="grid gap-4">
        <Members user={user} orgId={orgId} onAsk={setAsk} />
        <Invitations user={user} orgId={orgId} onAsk={setAsk} />
        <RoleGuide own={user.role} />
        <Keys />
        <OrganizationQuotas />
      </div>
      {ask && (
        <MemberDialogs
          orgId={orgId}
          orgName={name}
          ask={ask}
          onClose={() => {
            setAsk(null)
          }}
        />
      )}
    </>
  )
}
