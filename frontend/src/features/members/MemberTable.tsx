import type { Member, SessionUser } from '~/api/types'
import { ROLES } from '~/features/session/access'
import { time } from '~/lib/format'
import { Badge } from '~/ui/Badge'
import { Button } from '~/ui/Button'
import { Table } from '~/ui/Table'

import type { MemberAsk } from './ask'
import { memberRefusal } from './can'
import { RoleBadge } from './RoleBadge'

type Props = { user: SessionUser; members: Member[]; onAsk: (ask: MemberAsk) => void }

/** Who is in an organisation, and as what. */
export function MemberTable({ user, members, onAsk }: Props) {
  return (
    <Table
      caption="Members of the organisation"
      cards
      rows={members}
      rowKey={(row) => row.member.id}
      empty="The organisation has no members yet; API keys alone open it."
      columns={[
        {
          key: 'person',
          header: 'Person',
          sort: (row) => row.user.email,
          cell: (row) => (
            <div className="min-w-0">
              <p className="flex flex-wrap items-center gap-x-2 max-sm:justify-end">
                <span className="font-medium break-all">{row.user.email}</span>
                {row.member.user_id === user.id && <Badge tone="accent">you</Badge>}
              </p>
              {row.user.name && row.user.name !== row.user.email && (
                <p className="text-xs text-muted">{row.user.name}</p>
              )}
            </div>
          ),
        },
        {
          key: 'role',
          header: 'Role',
          sort: (row) => ROLES.indexOf(row.member.role),
          cell: (row) => <RoleBadge role={row.member.role} />,
        },
        {
          key: 'factor',
          header: 'Second factor',
          sort: (row) => String(row.user.has_mfa),
          cell: (row) => (row.user.has_mfa ? <Badge tone="good">on</Badge> : <span className="text-muted">off</span>),
        },
        {
          key: 'joined',
          header: 'Since',
          sort: (row) => Date.parse(row.member.joined_at),
          cell: (row) => time(row.member.joined_at),
        },
        {
          key: 'actions',
          header: <span className="sr-only">Actions</span>,
          cell: (row) => {
            const refused = memberRefusal(user, row, members)
            return (
              <span className="flex w-full flex-wrap justify-end gap-2">
                <Button
                  aria-label={`Change the role of ${row.user.email}`}
                  disabledReason={refused}
                  onClick={() => {
                    onAsk({ what: 'role', member: row })
                  }}
                >
                  Change role
                </Button>
                <Button
                  variant="danger"
                  aria-label={`Remove ${row.user.email}`}
                  disabledReason={refused}
                  onClick={() => {
                    onAsk({ what: 'remove', member: row })
                  }}
                >
                  Remove
                </Button>
              </span>
            )
          },
        },
      ]}
    />
  )
}
