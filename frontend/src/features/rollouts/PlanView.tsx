import type { RolloutPlan } from '~/api/types'
import { cellColumn, namedColumn } from '~/features/computes/columns'
import { bytes, bytesPerSecond, count, duration } from '~/lib/format'
import { stateText } from '~/shared/states'
import { Stat, Stats } from '~/ui/Stat'
import { type Column, Table } from '~/ui/Table'

/** The totals of a plan; a frozen one keeps these, its rows are the rollout's computes. */
type Summary = Omit<RolloutPlan, 'computes' | 'excluded'>

function saves<Row extends { expected_wal_saved_bytes_per_second: number | null }>(): Column<Row> {
  return {
    key: 'saved',
    header: 'Saves',
    numeric: true,
    cell: (row) => bytesPerSecond(row.expected_wal_saved_bytes_per_second),
  }
}

function WaveTable({ plan }: { plan: Summary }) {
  return (
    <Table
      caption="Waves of the plan"
      rows={plan.waves}
      rowKey={(row) => String(row.index)}
      empty="No wave: every compute is left out."
      cards
      columns={[
        { key: 'wave', header: 'Wave', cell: (row) => row.name },
        { key: 'computes', header: 'Computes', numeric: true, cell: (row) => count(row.computes) },
        {
          key: 'cells',
          header: 'By cell',
          cell: (row) => {
            const cells = Object.entries(row.by_cell)
            const text = cells.map(([cell, number]) => `${cell} ${String(number)}`)
            return (
              <span className="text-xs" title={text.join(', ')}>
                {text.slice(0, 4).join(', ')}
                {cells.length > 4 && `, and ${String(cells.length - 4)} more cells`}
              </span>
            )
          },
        },
        { key: 'soak', header: 'Then watched', numeric: true, cell: (row) => duration(row.soak_seconds) },
        ...(plan.target_version ? [] : [saves<Summary['waves'][number]>()]),
      ]}
    />
  )
}

/** What a plan comes to: how many, how much saved, in which waves, and who is left out for which reason. */
export function PlanSummary({ plan }: { plan: Summary }) {
  return (
    <div className="grid gap-4">
      <Stats>
        <Stat
          label="Will be switched"
          value={count(plan.computes_total)}
          note={
            (plan.at_next_start_total ?? 0) > 0
              ? `of them ${count(plan.at_next_start_total)} suspended: at their next start`
              : 'computes'
          }
        />
        {plan.target_version ? (
          <Stat label="Onto Postgres" value={plan.target_version} note="each by a clean stop and a start" />
        ) : (
          <Stat
            label="Expected saving"
            value={bytesPerSecond(plan.expected_wal_saved_bytes_per_second)}
            note="of WAL: the page images these computes log now, from Prometheus"
          />
        )}
        <Stat label="Left out" value={count(plan.excluded_total)} note="computes, each with its reason" />
      </Stats>
      <WaveTable plan={plan} />
      {plan.excluded_by_code.length > 0 && (
        <div>
          <h3 className="mb-1 text-sm font-medium">Left out, by reason</h3>
          <ul className="space-y-1 text-sm">
            {plan.excluded_by_code.map((row) => (
              <li key={row.code}>
                <strong className="tabular">{count(row.computes)}</strong> {stateText(row.code)}{' '}
                <span className="text-muted">— for example: {row.example}</span>
              </li>
            ))}
          </ul>
        </div>
      )}
    </div>
  )
}

/** Who left out, each with its reason. */
export function ExcludedTable({ rows }: { rows: RolloutPlan['excluded'] }) {
  return (
    <Table
      caption="Excluded computes"
      rows={rows}
      rowKey={(row) => row.compute_id}
      empty="Nobody is left out."
      cards
      columns={[
        namedColumn(),
        cellColumn((row: RolloutPlan['excluded'][number]) => [row.region_id, row.cell]),
        { key: 'reason', header: 'Why', cell: (row) => row.reason },
      ]}
    />
  )
}

/** A whole plan: its totals, then who is switched in which wave with what to gain, and who is not and why. */
export function PlanView({ plan }: { plan: RolloutPlan }) {
  const waves = new Map(plan.waves.map((wave) => [wave.index, wave.name]))
  const listed = (shown: number, total: number) =>
    shown < total ? `the first ${count(shown)} of ${count(total)}` : count(total)
  return (
    <>
      <PlanSummary plan={plan} />
      <h3 className="mt-5 mb-1 font-medium">
        Will be switched ({listed(plan.computes.length, plan.computes_total)})
      </h3>
      <Table
        caption="Computes by wave"
        rows={plan.computes}
        rowKey={(row) => row.compute_id}
        empty="Nobody: every compute is left out."
        cards
        columns={[
          { key: 'wave', header: 'Wave', cell: (row) => waves.get(row.wave) ?? row.wave },
          namedColumn(),
          cellColumn((row: RolloutPlan['computes'][number]) => [row.region_id, row.cell]),
          { key: 'size', header: 'Size', numeric: true, cell: (row) => bytes(row.size_bytes) },
          { key: 'wal', header: 'WAL now', numeric: true, cell: (row) => bytesPerSecond(row.wal_bytes_per_second) },
          plan.target_version
            ? {
                key: 'versions',
                header: 'Postgres',
                cell: (row) => `${row.previous_version ?? '?'} → ${row.target_version ?? '?'}`,
              }
            : saves<RolloutPlan['computes'][number]>(),
          {
            key: 'windows',
            header: 'Baseline, bake',
            numeric: true,
            cell: (row) =>
              row.mode === 'at_next_start'
                ? 'at next start'
                : `${duration(row.baseline_seconds)}, ${duration(row.bake_seconds)}`,
          },
        ]}
      />
      {plan.excluded.length > 0 && (
        <>
          <h3 className="mt-5 mb-1 font-medium">Left out ({listed(plan.excluded.length, plan.excluded_total)})</h3>
          <ExcludedTable rows={plan.excluded} />
        </>
      )}
    </>
  )
}
