import { useSuspenseInfiniteQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'

import { rolloutsQuery } from '~/features/rollouts/queries'
import { RolloutLink } from '~/features/rollouts/RolloutLink'
import { ago, count } from '~/lib/format'
import { PageHeader } from '~/shared/PageHeader'
import { StateBadge } from '~/shared/StateBadge'
import { useNow } from '~/shared/use-now'
import { Badge } from '~/ui/Badge'
import { Card } from '~/ui/Card'
import { LoadMore } from '~/ui/LoadMore'
import { Table } from '~/ui/Table'

export function RolloutsPage() {
  const { data, hasNextPage, isFetchingNextPage, fetchNextPage } = useSuspenseInfiniteQuery(rolloutsQuery)
  const rows = data.pages.flatMap((page) => page.rollouts)
  const now = useNow()
  return (
    <>
      <PageHeader
        title="Rollouts"
        note="A rollout brings image pushdown, or another minor of Postgres, to running computes wave by wave."
        actions={
          <Link
            to="/rollouts/new"
            className="inline-flex min-h-8 items-center rounded-md bg-accent px-3 py-1 text-sm font-medium text-accent-text"
          >
            New rollout
          </Link>
        }
      />
      <Card>
        <Table
          caption="Rollouts"
          rows={rows}
          rowKey={(row) => row.id}
          empty="No rollouts yet. New rollout shows what one would do, before anything is changed."
          cards
          partial={hasNextPage}
          columns={[
            {
              key: 'name',
              header: 'Name',
              sort: (row) => row.name,
              cell: (row) => (
                <span className="inline-flex flex-wrap items-center gap-2">
                  <RolloutLink id={row.id}>{row.name}</RolloutLink>
                  {row.whole_fleet && (
                    <Badge title="Made by an operator, over every account’s computes.">whole fleet</Badge>
                  )}
                </span>
              ),
            },
            {
              key: 'status',
              header: 'Status',
              sort: (row) => row.status,
              cell: (row) => <StateBadge state={row.status} reason={row.status_reason} />,
            },
            {
              key: 'alerts',
              header: 'Alerts',
              sort: (row) => row.alerts_total,
              cell: (row) => (row.alerts_total > 0 ? <Badge tone="warn">{row.alerts_total} open</Badge> : '—'),
            },
            {
              key: 'wave',
              header: 'Wave',
              sort: (row) => row.current_wave,
              cell: (row) =>
                row.current_wave == null ? '—' : `${String(row.current_wave + 1)} of ${String(row.waves_total)}`,
            },
            {
              key: 'computes',
              header: 'Computes passed',
              numeric: true,
              sort: (row) => row.computes_passed,
              cell: (row) => `${count(row.computes_passed)} of ${count(row.computes_total)}`,
            },
            {
              key: 'created',
              header: 'Created',
              sort: (row) => Date.parse(row.created_at),
              cell: (row) => `${ago(row.created_at, now)}${row.created_by ? ` by ${row.created_by}` : ''}`,
            },
          ]}
        />
        <LoadMore shown={rows.length} {...{ hasNextPage, isFetchingNextPage, fetchNextPage }} />
      </Card>
    </>
  )
}
