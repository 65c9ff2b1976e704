import { useQuery, useSuspenseQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'

import { errorText } from '~/api/errors'
import { FleetWal } from '~/features/fleet/FleetWal'
import { cellsQuery, fleetMetricsQuery, fleetQuery, storageQuery } from '~/features/fleet/queries'
import { StorageNodes } from '~/features/fleet/StorageNodes'
import { bytesPerSecond, count, percent } from '~/lib/format'
import { MetricCharts } from '~/shared/MetricCharts'
import { PageHeader } from '~/shared/PageHeader'
import { stateText } from '~/shared/states'
import { BUTTON_LINK } from '~/ui/button-link'
import { Card } from '~/ui/Card'
import { Loading, Notice } from '~/ui/Notice'
import { Stat, Stats } from '~/ui/Stat'
import { Table } from '~/ui/Table'

/** Where image pushdown is, cell by cell. */
function Cells() {
  const { data } = useQuery(cellsQuery)
  if (!data) return <Loading what="cells" />
  return (
    <Table
      caption="Cells"
      rows={data.cells}
      rowKey={(row) => `${row.region_id}/${row.cell}`}
      empty="Nothing runs yet."
      cards
      columns={[
        { key: 'region', header: 'Region', sort: (row) => row.region_id, cell: (row) => row.region_id },
        {
          key: 'cell',
          header: 'Cell',
          sort: (row) => row.cell,
          cell: (row) => (
            <Link
              to="/fleet/pushdown"
              search={{ region: row.region_id, cell: row.cell }}
              className="text-accent underline"
            >
              {row.cell}
            </Link>
          ),
        },
        {
          key: 'projects',
          header: 'Projects',
          numeric: true,
          sort: (row) => row.projects,
          cell: (row) => count(row.projects),
        },
        {
          key: 'computes',
          header: 'Computes',
          numeric: true,
          sort: (row) => row.computes,
          cell: (row) => count(row.computes),
        },
        {
          key: 'on',
          header: 'Image pushdown',
          numeric: true,
          sort: (row) => row.pushdown_on,
          cell: (row) =>
            `${count(row.pushdown_on)} (${percent(row.computes ? row.pushdown_on / row.computes : null)})`,
        },
      ]}
    />
  )
}

export function FleetPage() {
  const { data: fleet } = useSuspenseQuery(fleetQuery)
  const { data: storage } = useSuspenseQuery(storageQuery)
  const metrics = useQuery(fleetMetricsQuery(15))
  const states = Object.entries(fleet.computes.by_state).map(
    ([state, number]) => `${count(number)} ${stateText(state)}`,
  )
  const window = `over ${String(fleet.window_seconds)} s, from Prometheus`
  return (
    <>
      <PageHeader
        title="Fleet"
        note={states.join(', ')}
        actions={
          <Link to="/fleet/pushdown" className={BUTTON_LINK}>
            Who has image pushdown
          </Link>
        }
      />
      {fleet.compute_runtime === 'simulated' && (
        <div className="mb-4">
          <Notice tone="warn">This fleet is simulated: no database runs, and every figure comes from a model.</Notice>
        </div>
      )}
      <div className="grid gap-4">
        <Card title="Now">
          <Stats>
            <Stat
              label="Computes"
              value={count(fleet.computes.total)}
              note={
                fleet.computes.by_state_source === 'agents'
                  ? 'their states asked of each'
                  : 'their states as last stored'
              }
            />
            <Stat
              label="Image pushdown on"
              value={count(fleet.computes.pushdown_on)}
              note={`wanted; off: ${count(fleet.computes.pushdown_off)}`}
            />
            <Stat label="WAL, page images" value={bytesPerSecond(fleet.wal?.image_bytes_per_second)} note={window} />
            <Stat label="WAL, rest" value={bytesPerSecond(fleet.wal?.rest_bytes_per_second)} note={window} />
          </Stats>
        </Card>
        {metrics.error ? (
          <Notice tone="bad">{errorText(metrics.error)}</Notice>
        ) : metrics.data ? (
          <MetricCharts metrics={metrics.data} />
        ) : (
          <Loading what="metrics" />
        )}
        <FleetWal minutes={15} />
        <Card title="Regions and cells" note="What is wanted of each compute, from the control plane’s own records.">
          <Cells />
        </Card>
        <StorageNodes storage={storage} />
      </div>
    </>
  )
}
