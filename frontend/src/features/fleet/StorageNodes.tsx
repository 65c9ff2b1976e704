import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'

import type { SafekeeperHealth, SafekeeperSickness, StorageHealth } from '~/api/types'
import { SafekeeperReplaceForm } from '~/features/safekeepers/SafekeeperReplaceForm'
import { STATES } from '~/features/safekeepers/voters'
import { sessionQuery } from '~/features/session/queries'
import { ago, count } from '~/lib/format'
import { useNow } from '~/shared/use-now'
import { Badge } from '~/ui/Badge'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { Table } from '~/ui/Table'

function Health({
  node,
  now,
}: {
  node: { healthy: boolean; reason?: string | null; lost_timelines?: number; sick?: SafekeeperSickness[] }
  now: number
}) {
  const lost = node.lost_timelines ?? 0
  const sick = node.sick ?? []
  if (node.healthy && lost === 0 && sick.length === 0) return <Badge tone="good">healthy</Badge>
  return (
    <div className="grid justify-items-start gap-1">
      <span className="flex flex-wrap gap-1">
        {!node.healthy && <Badge tone="bad">does not answer</Badge>}
        {lost > 0 && <Badge tone="bad">{`lost ${count(lost)} ${lost === 1 ? 'log' : 'logs'}`}</Badge>}
      </span>
      {node.reason && <span className="text-xs text-muted">{node.reason}</span>}
      {sick.map((each) => (
        <span key={each.kind} className="text-xs text-muted">
          {`${STATES[each.kind].text} in ${count(each.branches)} ${each.branches === 1 ? 'branch' : 'branches'}`}
          {`, first seen ${ago(each.since, now)}${each.reason === node.reason ? '' : `: ${each.reason}`}`}
        </span>
      ))}
    </div>
  )
}

function Pageservers({ pageservers, now }: { pageservers: StorageHealth['pageservers']; now: number }) {
  return (
    <Card title="Pageservers" note="They make pages of the WAL, and keep them in the object store.">
      <Table
        caption="Pageserver nodes"
        cards
        rows={pageservers}
        rowKey={(row) => String(row.id)}
        empty="No pageservers are configured."
        columns={[
          { key: 'id', header: 'Pageserver', sort: (row) => row.id, cell: (row) => row.id },
          {
            key: 'address',
            header: 'Address',
            sort: (row) => row.address,
            cell: (row) => <code className="text-xs">{row.address}</code>,
          },
          {
            key: 'health',
            header: 'Health',
            sort: (row) => row.healthy,
            cell: (row) => <Health node={row} now={now} />,
          },
          {
            key: 'timelines',
            header: 'Timelines',
            numeric: true,
            sort: (row) => row.timelines,
            cell: (row) => count(row.timelines),
          },
        ]}
      />
    </Card>
  )
}

/** Safekeepers with the logs they hold, and pageservers. Operators replace a safekeeper here. */
export function StorageNodes({ storage }: { storage: StorageHealth }) {
  const operator = useQuery(sessionQuery).data?.user.operator ?? false
  const [asked, setAsked] = useState<SafekeeperHealth | null>(null)
  const now = useNow()
  const refused = (node: SafekeeperHealth) =>
    node.branches === 0
      ? 'No branch’s log has it as a member.'
      : storage.safekeepers.length === 1
        ? 'There is no other safekeeper.'
        : null
  return (
    <>
      <Card
        title="Safekeepers"
        note="They hold the newest WAL of every branch. Each branch chooses its own among them, on its page."
      >
        <Table
          caption="Safekeeper nodes"
          cards
          rows={storage.safekeepers}
          rowKey={(row) => String(row.id)}
          empty="No safekeepers are configured."
          columns={[
            { key: 'id', header: 'Safekeeper', sort: (row) => row.id, cell: (row) => row.id },
            {
              key: 'address',
              header: 'Address',
              sort: (row) => row.address,
              cell: (row) => <code className="text-xs">{row.address}</code>,
            },
            {
              key: 'health',
              header: 'Health',
              sort: (row) => row.healthy,
              cell: (row) => <Health node={row} now={now} />,
            },
            {
              key: 'branches',
              header: 'Member of',
              numeric: true,
              sort: (row) => row.branches,
              cell: (row) => `${count(row.branches)} ${row.branches === 1 ? 'branch' : 'branches'}`,
            },
            {
              key: 'timelines',
              header: 'Logs held',
              numeric: true,
              sort: (row) => row.timelines,
              cell: (row) => count(row.timelines),
            },
            {
              key: 'replacing',
              header: 'Being changed',
              numeric: true,
              sort: (row) => row.replacing,
              cell: (row) => (row.replacing ? <Badge tone="accent">{count(row.replacing)}</Badge> : '0'),
            },
            ...(operator
              ? [
                  {
                    key: 'replace',
                    header: 'Actions',
                    cell: (row: SafekeeperHealth) => (
                      <Button
                        needs="runs"
                        aria-label={`Replace safekeeper ${String(row.id)}`}
                        disabledReason={refused(row)}
                        onClick={() => {
                          setAsked(row)
                        }}
                      >
                        Replace
                      </Button>
                    ),
                  },
                ]
              : []),
          ]}
        />
      </Card>
      <Pageservers pageservers={storage.pageservers} now={now} />
      {asked && (
        <SafekeeperReplaceForm
          safekeeper={asked}
          safekeepers={storage.safekeepers}
          onClose={() => {
            setAsked(null)
          }}
        />
      )}
    </>
  )
}
