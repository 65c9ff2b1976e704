import { Link } from '@tanstack/react-router'

import type { ComputeSummary } from '~/api/types'
import { bytesPerSecond, percent, perSecond } from '~/lib/format'
import { StateBadge } from '~/shared/StateBadge'
import { Badge } from '~/ui/Badge'
import { Table } from '~/ui/Table'

import { computeColumn } from './columns'
import { PostgresVersion } from './PostgresVersion'

/** Whether the compute still logs page images, and whether that is what is wanted. */
export function PushdownBadge({ fpw }: { fpw: ComputeSummary['full_page_writes'] }) {
  if (fpw.actual == null) return <Badge title="The compute does not run.">{fpw.wanted ? 'off at next start' : 'on at next start'}</Badge>
  if (fpw.actual !== fpw.wanted) return <Badge tone="warn" title="What runs differs from what is wanted.">changing</Badge>
  return fpw.actual ? <Badge title="Postgres logs page images.">off</Badge> : <Badge tone="good" title={fpw.lsn ? `Since ${fpw.lsn}` : undefined}>on</Badge>
}

export function ComputeTable({ computes }: { computes: ComputeSummary[] }) {
  const window = computes.find((compute) => compute.rates)?.rates?.window_seconds
  const over = window ? ` (${String(window)} s)` : ''
  return (
    <Table
      caption="Computes"
      cards
      rows={computes}
      rowKey={(row) => row.id}
      empty="No computes match."
      columns={[
        computeColumn((row: ComputeSummary) => row.id),
        {
          key: 'project',
          header: 'Project / branch',
          cell: (row) => (
            <span>
              <Link to="/projects/$projectId" params={{ projectId: row.project_id }} className="underline">{row.project_name}</Link> /{' '}
              <Link to="/projects/$projectId/branches/$branchId" params={{ projectId: row.project_id, branchId: row.branch_id }} className="underline">{row.branch_name}</Link>
            </span>
          ),
        },
        { key: 'state', header: 'State', cell: (row) => <StateBadge state={row.state} reason={row.reason} /> },
        { key: 'postgres', header: 'Postgres', cell: (row) => <PostgresVersion compute={row} /> },
        { key: 'pushdown', header: 'Image pushdown', cell: (row) => <PushdownBadge fpw={row.full_page_writes} /> },
        {
          key: 'wal',
          header: `WAL${over}`,
          numeric: true,
          cell: (row) => bytesPerSecond(row.rates ? sum(row.rates.wal_image_bytes_per_second, row.rates.wal_rest_bytes_per_second) : null),
        },
        { key: 'share', header: `Images of WAL${over}`, numeric: true, cell: (row) => percent(row.rates ? imageShare(row.rates) : null) },
        { key: 'tps', header: `Transactions${over}`, numeric: true, cell: (row) => perSecond(row.rates?.transactions_per_second) },
      ]}
    />
  )
}

function sum(a: number | null | undefined, b: number | null | undefined): number | null {
  return a == null || b == null ? null : a + b
}

function imageShare(rates: NonNullable<ComputeSummary['rates']>): number | null {
  const total = sum(rates.wal_image_bytes_per_second, rates.wal_rest_bytes_per_second)
  return total ? (rates.wal_image_bytes_per_second ?? 0) / total : null
}
