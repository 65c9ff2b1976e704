import { Link } from '@tanstack/react-router'

import type { AuditEntry } from '~/api/types'
import { time } from '~/lib/format'
import { detailText } from '~/shared/audit-text'
import { Button } from '~/ui/Button'
import { Table } from '~/ui/Table'

type Props = { entries: AuditEntry[]; partial: boolean; onOpen: (entry: AuditEntry) => void }

/** Who changed what, and when. */
export function AuditTable({ entries, partial, onOpen }: Props) {
  return (
    <Table
      caption="Audit log"
      cards
      partial={partial}
      rows={entries}
      rowKey={(row) => String(row.id)}
      empty="No change is recorded that fits."
      columns={[
        {
          key: 'at',
          header: 'When',
          sort: (row) => Date.parse(row.at),
          cell: (row) => <span className="whitespace-nowrap">{time(row.at)}</span>,
        },
        {
          key: 'actor',
          header: 'Who',
          sort: (row) => row.actor,
          cell: (row) => (
            <div>
              {row.actor}
              {row.address && <p className="text-xs whitespace-nowrap text-muted">from {row.address}</p>}
            </div>
          ),
        },
        { key: 'action', header: 'What', sort: (row) => row.action, cell: (row) => <code>{row.action}</code> },
        {
          key: 'resource',
          header: 'On',
          sort: (row) => row.resource,
          cell: (row) => (
            <span className="text-xs">
              <code className="break-all">{row.resource}</code>
              {row.project_id && (
                <>
                  {' of '}
                  <Link
                    to="/projects/$projectId"
                    params={{ projectId: row.project_id }}
                    className="text-accent underline"
                  >
                    {row.project_id}
                  </Link>
                </>
              )}
            </span>
          ),
        },
        {
          key: 'detail',
          header: 'Detail',
          cell: (row) => (
            <span className="line-clamp-3 text-xs" title={detailText(row.detail)}>
              {detailText(row.detail)}
            </span>
          ),
        },
        {
          key: 'request',
          header: 'Request',
          cell: (row) => <code className="text-xs break-all">{row.request_id || '—'}</code>,
        },
        {
          key: 'open',
          header: <span className="sr-only">Actions</span>,
          cell: (row) => (
            <span className="flex w-full justify-end">
              <Button
                variant="quiet"
                aria-label={`Show entry ${String(row.id)}, ${row.action} on ${row.resource}`}
                onClick={() => {
                  onOpen(row)
                }}
              >
                Show
              </Button>
            </span>
          ),
        },
      ]}
    />
  )
}
