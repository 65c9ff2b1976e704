import type { ApiKey } from '~/api/types'
import { ago, time } from '~/lib/format'
import { useNow } from '~/shared/use-now'
import { Badge } from '~/ui/Badge'
import { Button } from '~/ui/Button'
import { Table } from '~/ui/Table'

type Props = {
  keys: ApiKey[]
  empty: string
  /** Why none may be revoked; null where each may. */
  refused?: string | null
  onRevoke: (key: ApiKey) => void
}

/** API keys, without the keys themselves. */
export function KeyTable({ keys, empty, refused = null, onRevoke }: Props) {
  const now = useNow()
  return (
    <Table
      caption="Keys that count"
      cards
      rows={keys}
      rowKey={(row) => String(row.id)}
      empty={empty}
      columns={[
        {
          key: 'name',
          header: 'Key',
          sort: (row) => row.name,
          cell: (row) => <span className="font-medium break-all">{row.name}</span>,
        },
        {
          key: 'scope',
          header: 'May',
          sort: (row) => row.role,
          cell: (row) => <Scope apiKey={row} />,
        },
        {
          key: 'created',
          header: 'Made',
          sort: (row) => Date.parse(row.created_at),
          cell: (row) => (
            <div>
              {time(row.created_at)}
              <p className="text-xs break-all text-muted">by {row.created_by.name}</p>
            </div>
          ),
        },
        {
          key: 'expires',
          header: 'Expires',
          sort: (row) => (row.expires_at ? Date.parse(row.expires_at) : undefined),
          cell: (row) => <Expiry at={row.expires_at} now={now} />,
        },
        {
          key: 'used',
          header: 'Last used',
          sort: (row) => (row.last_used_at ? Date.parse(row.last_used_at) : 0),
          cell: (row) =>
            row.last_used_at ? (
              <div>
                {ago(row.last_used_at, now)}
                {row.last_used_from_addr && (
                  <p className="text-xs whitespace-nowrap text-muted">from {row.last_used_from_addr}</p>
                )}
              </div>
            ) : (
              'never'
            ),
        },
        {
          key: 'actions',
          header: <span className="sr-only">Actions</span>,
          cell: (row) => (
            <span className="flex w-full justify-end">
              <Button
                variant="danger"
                aria-label={`Revoke ${row.name}`}
                disabledReason={refused}
                onClick={() => {
                  onRevoke(row)
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

/** What a key may do at most. */
function Scope({ apiKey }: { apiKey: ApiKey }) {
  return (
    <div>
      <p className="flex flex-wrap items-center gap-1 max-sm:justify-end">
        {apiKey.read_only ? 'read' : `act as ${apiKey.role}`}
        {apiKey.read_only && <Badge>reads only</Badge>}
      </p>
      <p className="text-xs text-muted">
        {apiKey.project_id ? (
          <>
            in <code className="break-all">{apiKey.project_id}</code> alone
          </>
        ) : (
          'in all of the organisation'
        )}
      </p>
    </div>
  )
}

function Expiry({ at, now }: { at: string | null; now: number }) {
  if (at === null) return 'never'
  return Date.parse(at) <= now ? <Badge tone="bad">expired {ago(at, now)}</Badge> : time(at)
}
