import type { ApiKey } from '~/api/types'
import { ago, time } from '~/lib/format'
import { useNow } from '~/shared/use-now'
import { Button } from '~/ui/Button'
import { Table } from '~/ui/Table'

/** The account's keys, without the keys themselves. */
export function KeyTable({ keys, onRevoke }: { keys: ApiKey[]; onRevoke: (key: ApiKey) => void }) {
  const now = useNow()
  return (
    <Table
      caption="API keys"
      cards
      rows={keys}
      rowKey={(row) => String(row.id)}
      empty="There is no key."
      columns={[
        { key: 'name', header: 'Key', sort: (row) => row.name, cell: (row) => row.name },
        {
          key: 'created',
          header: 'Made',
          sort: (row) => Date.parse(row.created_at),
          cell: (row) => `${time(row.created_at)} by ${row.created_by.name}`,
        },
        {
          key: 'used',
          header: 'Last used',
          sort: (row) => (row.last_used_at ? Date.parse(row.last_used_at) : 0),
          cell: (row) =>
            row.last_used_at ? `${ago(row.last_used_at, now)} from ${row.last_used_from_addr}` : 'never',
        },
        {
          key: 'actions',
          header: <span className="sr-only">Actions</span>,
          cell: (row) => (
            <span className="flex justify-end">
              <Button
                variant="danger"
                aria-label={`Revoke ${row.name}`}
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
