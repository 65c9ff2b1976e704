import { Link } from '@tanstack/react-router'

import type { ComputeSummary } from '~/api/types'
import { bytesPerSecond, percent, perSecond } from '~/lib/format'
import { StateBadge } from '~/shared/StateBadge'
import { Badge } from '~/ui/Badge'
import { Table } from '~/ui/Table'

import { computeColumn } from './columns'
import { PostgresVersion } from './PostgresVersion'

type Writes = ComputeSummary['full_page_writes']

/** What is to be said of image pushdown: how it is, or how it will be. */
function pushdownText({ actual, wanted }: Writes): string {
  if (actual == null) return wanted ? 'off at next start' : 'on at next start'
  if (actual !== wanted) return 'changing'
  return actual ? 'off' : 'on'
}

/** Whether the compute still logs page images, and whether that is what is wanted. */
export function PushdownBadge({ fpw }: { fpw: Writes }) {
  const text = pushdownText(fpw)
  if (fpw.actual == null) return <Badge title="The compute does not run.">{text}</Badge>
  if (fpw.actual !== fpw.wanted)
    return (
      <Badge tone="warn" title="What runs differs from what is wanted.">
        {text}
      </Badge>
    )
  return fpw.actual ? (
    <Badge title="Postgres logs page images.">{text}</Badge>
  ) : (
    <Badge tone="good" title={fpw.lsn ? `Since ${fpw.lsn}` : undefined}>
      {text}
    </Badge>
  )
}

/** `partial`: there are more computes than these. */
export function ComputeTable({ computes, partial }: { computes: ComputeSummary[]; partial: boolean }) {
  const window = computes.find((compute) => compute.rates)?.rates?.window_seconds
  const over = window ? ` (${String(window)} s)` : ''
  return (
    <Table
      caption="Computes"
      cards
      partial={partial}
      rows={computes}
      rowKey={(row) => row.id}
      empty="No computes match."
      columns={[
        computeColumn((row: ComputeSummary) => row.id),
        {
          key: 'project',
          header: 'Project / branch',
          sort: (row) => `${row.project_name} / ${row.branch_name}`,
          cell: (row) => (
            <span>
              <Link to="/projects/$projectId" params={{ projectId: row.project_id }} className="underline">
                {row.project_name}
              </Link>{' '}
              /{' '}
              <Link
                to="/projects/$projectId/branches/$branchId"
                params={{ projectId: row.project_id, branchId: row.branch_id }}
                className="underline"
              >
                {row.branch_name}
              </Link>
            </span>
          ),
        },
        {
          key: 'state',
          header: 'State',
          sort: (row) => row.state,
          cell: (row) => <StateBadge state={row.state} reason={row.reason} />,
        },
        {
          key: 'postgres',
          header: 'Postgres',
          sort: (row) => row.postgres_version,
          cell: (row) => <PostgresVersion compute={row} />,
        },
        {
          key: 'pushdown',
          header: 'Image pushdown',
          sort: (row) => pushdownText(row.full_page_writes),
          cell: (row) => <PushdownBadge fpw={row.full_page_writes} />,
        },
        {
          key: 'wal',
          header: `WAL${over}`,
          numeric: true,
          sort: (row) => walRate(row),
          cell: (row) => bytesPerSecond(walRate(row)),
        },
        {
          key: 'share',
          header: `Images of WAL${over}`,
          numeric: true,
          sort: (row) => imageShare(row),
          cell: (row) => percent(imageShare(row)),
        },
        {
          key: 'tps',
          header: `Transactions${over}`,
          numeric: true,
          sort: (row) => row.rates?.transactions_per_second,
          cell: (row) => perSecond(row.rates?.transactions_per_second),
        },
      ]}
    />
  )
}

/** Bytes of WAL a second; null where they are not known. */
function walRate({ rates }: ComputeSummary): number | null {
  const images = rates?.wal_image_bytes_per_second
  const rest = rates?.wal_rest_bytes_per_second
  return images == null || rest == null ? null : images + rest
}

function imageShare(row: ComputeSummary): number | null {
  const total = walRate(row)
  return total ? (row.rates?.wal_image_bytes_per_second ?? 0) / total : null
}
