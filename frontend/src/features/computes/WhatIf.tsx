import type { WalCost } from '~/api/types'
import { bytes, bytesPerSecond, count, percent, time } from '~/lib/format'
import { stateText } from '~/shared/states'
import { Card } from '~/ui/Card'
import { CurveChart } from '~/ui/CurveChart'

type What = WalCost['what_if']

const ARMS = {
  full_page_writes: { label: 'full page writes', color: '--chart-images' },
  full_page_writes_lz4: { label: 'full page writes, wal_compression = lz4', color: '--chart-p99', dashed: true },
  pushdown: { label: 'image pushdown', color: '--chart-rest' },
} as const

type Arm = keyof typeof ARMS
const isArm = (name: string): name is Arm => name in ARMS

/** How the curve was measured, as far as its file says and its label does not. */
function provenance(curve: What['curve']): string {
  const { at, cores, command } = curve.provenance
  const parts = [
    typeof at === 'string' && time(at),
    typeof cores === 'number' && `${count(cores)} cores`,
    typeof command === 'string' && command,
  ]
  return parts.filter(Boolean).join(' · ')
}

function Measured({ curve }: { curve: What['curve'] }) {
  const curves = curve.arms.filter(isArm).map((arm) => ({
    ...ARMS[arm],
    points: curve.series
      .filter((point) => point.arm === arm)
      .map((point) => ({
        x: point.max_wal_size_bytes,
        y: point.wal_bytes_per_transaction,
        low: point.wal_bytes_min / point.transactions,
        high: point.wal_bytes_max / point.transactions,
      })),
  }))
  return (
    <Card
      title="WAL against checkpoint distance"
      note={`${curve.label}. ${provenance(curve)}. Bars span the repeats.`}
    >
      <CurveChart
        title="WAL bytes a transaction against max_wal_size"
        curves={curves}
        xText={bytes}
        yText={bytes}
        yBytes
        xLabel="max_wal_size"
      />
      <p className="mt-2 text-xs text-muted">{curve.method}</p>
    </Card>
  )
}

function Estimated({ whatIf }: { whatIf: What }) {
  const curves = (Object.keys(ARMS) as Arm[]).map((arm) => ({
    ...ARMS[arm],
    points: whatIf.estimates.map((estimate) => ({
      x: estimate.distance_factor,
      y: estimate.wal_bytes_per_second[arm],
    })),
  }))
  return (
    <Card title="What it would write" note="An estimate from its own WAL and the measured curve, not a measurement.">
      {whatIf.reason || whatIf.estimates.length === 0 ? (
        <p className="text-muted first-letter:uppercase">{whatIf.reason ?? 'There is nothing to estimate from.'}</p>
      ) : (
        <CurveChart
          title="Estimated WAL bytes a second against checkpoint distance"
          curves={curves}
          xText={(factor) => `${count(factor)}×`}
          yText={bytesPerSecond}
          yBytes
          xLabel="checkpoint distance, times today's"
          mark={{ x: 1, label: 'today' }}
        />
      )}
      {whatIf.placed && (
        <p className="mt-2 text-xs text-muted">
          Its page images are {percent(whatIf.placed.image_share)} of its WAL: on the curve that is where max_wal_size
          is {bytes(whatIf.placed.curve_max_wal_size_bytes)} with {stateText(whatIf.placed.arm)}
          {whatIf.placed.clamped && ', the nearest that was measured'}.
        </p>
      )}
      {whatIf.assumptions.length > 0 && (
        <ul className="mt-2 list-disc space-y-0.5 pl-5 text-xs text-muted">
          {whatIf.assumptions.map((assumption) => (
            <li key={assumption}>{assumption}</li>
          ))}
        </ul>
      )}
    </Card>
  )
}

/** Why a longer distance between checkpoints helps, and why pushdown ends the matter: the curve, and this compute on it. */
export function WhatIf({ whatIf }: { whatIf: What }) {
  return (
    <div className="grid gap-4 lg:grid-cols-2">
      <Estimated whatIf={whatIf} />
      <Measured curve={whatIf.curve} />
    </div>
  )
}
