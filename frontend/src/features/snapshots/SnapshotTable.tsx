import type { Branch, Snapshot } from '~/api/types'
import { bytes, time } from '~/lib/format'
import { Badge } from '~/ui/Badge'
import { Button } from '~/ui/Button'
import { Table } from '~/ui/Table'

import type { SnapshotAsk } from './ask'

type Props = { snapshots: Snapshot[]; branches: Branch[]; onAsk: (ask: SnapshotAsk) => void }

const moment = (value: string | null | undefined) => (value ? Date.parse(value) : 0)

/** A project's snapshots, newest first. */
export function SnapshotTable({ snapshots, branches, onAsk }: Props) {
  const nameOf = (id: string | null | undefined) =>
    branches.find((branch) => branch.id === id)?.name ?? 'a branch that is gone'
  return (
    <Table
      caption="Snapshots"
      cards
      rows={snapshots}
      rowKey={(row) => row.id}
      empty="There is no snapshot. Take one before a migration, or set a schedule."
      columns={[
        {
          key: 'name',
          header: 'Snapshot',
          sort: (row) => row.name,
          cell: (row) => (
            <span className="inline-flex flex-wrap items-center gap-2">
              <span className="font-medium break-all">{row.name}</span>
              {!row.manual && <Badge>scheduled</Badge>}
              {row.current_state !== 'ready' && <Badge tone="accent">being taken</Badge>}
            </span>
          ),
        },
        {
          key: 'branch',
          header: 'Of branch',
          sort: (row) => nameOf(row.source_branch_id),
          cell: (row) => nameOf(row.source_branch_id),
        },
        {
          key: 'of',
          header: 'State of',
          sort: (row) => moment(row.timestamp),
          cell: (row) => (
            <>
              {row.timestamp ? time(row.timestamp) : 'before its first commit'}
              <br />
              <code className="text-xs text-muted">{row.lsn ?? '—'}</code>
            </>
          ),
        },
        { key: 'size', header: 'Data', numeric: true, cell: (row) => bytes(row.full_size) },
        { key: 'by', header: 'Taken by', cell: (row) => row.created_by.name },
        {
          key: 'expires',
          header: 'Expires',
          sort: (row) => moment(row.expires_at),
          cell: (row) => (row.expires_at ? time(row.expires_at) : 'never'),
        },
        {
          key: 'actions',
          header: <span className="sr-only">Actions</span>,
          cell: (snapshot) => (
            <span className="flex flex-wrap justify-end gap-2">
              <Button
                needs="works"
                aria-label={`Restore ${snapshot.name}`}
                disabledReason={snapshot.current_state === 'ready' ? null : 'It is still being taken.'}
                onClick={() => {
                  onAsk({ what: 'restore', snapshot })
                }}
              >
                Restore
              </Button>
              <Button
                needs="works"
                variant="danger"
                aria-label={`Delete ${snapshot.name}`}
                onClick={() => {
                  onAsk({ what: 'delete', snapshot })
                }}
              >
                Delete
              </Button>
            </span>
          ),
        },
      ]}
    />
  )
}
