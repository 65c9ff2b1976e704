import type { Invitation, Member, SessionUser } from '~/api/types'
import { ROLES } from '~/features/session/access'
import { time, until } from '~/lib/format'
import { useNow } from '~/shared/use-now'
import { Badge } from '~/ui/Badge'
import { Button } from '~/ui/Button'
import { Table } from '~/ui/Table'

import type { MemberAsk } from './ask'
import { invitationRefusal } from './can'
import { inviterOf } from './invited'
import { RoleBadge } from './RoleBadge'

type Props = {
  user: SessionUser
  invitations: Invitation[]
  members: Member[]
  onAsk: (ask: MemberAsk) => void
}

/** Who is invited to an organisation, as what, by whom and until when. */
export function InvitationTable({ user, invitations, members, onAsk }: Props) {
  const now = useNow()
  return (
    <Table
      caption="Open invitations"
      cards
      rows={invitations}
      rowKey={(row) => row.id}
      empty="Nobody is invited who has not come yet."
      columns={[
        {
          key: 'email',
          header: 'Email',
          sort: (row) => row.email,
          cell: (row) => <span className="font-medium break-all">{row.email}</span>,
        },
        {
          key: 'role',
          header: 'Role',
          sort: (row) => ROLES.indexOf(row.role),
          cell: (row) => <RoleBadge role={row.role} />,
        },
        {
          key: 'inviter',
          header: 'Invited',
          sort: (row) => Date.parse(row.invited_at),
          cell: (row) => <Inviter of={row} members={members} />,
        },
        {
          key: 'expires',
          header: 'Expires',
          sort: (row) => Date.parse(row.expires_at),
          cell: (row) =>
            Date.parse(row.expires_at) <= now ? (
              <Badge tone="bad">expired</Badge>
            ) : (
              <div>
                {until(row.expires_at, now)}
                <p className="text-xs text-muted">{time(row.expires_at)}</p>
              </div>
            ),
        },
        {
          key: 'actions',
          header: <span className="sr-only">Actions</span>,
          cell: (row) => (
            <span className="flex w-full justify-end">
              <Button
                variant="danger"
                aria-label={`Revoke the invitation of ${row.email}`}
                disabledReason={invitationRefusal(user, row)}
                onClick={() => {
                  onAsk({ what: 'revoke', invitation: row })
                }}
              >
                Revoke
              </Button>
            </span>
          ),
        },
      ]}
    />
  )
}

function Inviter({ of, members }: { of: Invitation; members: Member[] }) {
  const inviter = inviterOf(of, members)
  return (
    <div className="min-w-0">
      {time(of.invited_at)}
      <p className="text-xs break-all text-muted">by {inviter.name}</p>
      {inviter.void !== null && <p className="mt-1 text-xs text-warn">{inviter.void}</p>}
    </div>
  )
}
