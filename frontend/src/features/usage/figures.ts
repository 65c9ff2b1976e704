import type { ConsumptionPeriod, ConsumptionTimeframe } from '~/api/types'
import { bytes, duration } from '~/lib/format'

import { frameText, type Granularity } from './range'

export type UsageRow = { key: string; start: Date; frame: ConsumptionTimeframe | null }

type Amount = Exclude<keyof ConsumptionTimeframe, 'timeframe_start' | 'timeframe_end'>
type Figure = { name: Amount; label: string; color: string; format: (value: number) => string }

const hours = (value: number) => duration(value)
const byteHours = (value: number) => (value === 0 ? '0' : `${bytes(value)}·h`)

export const FIGURES: Figure[] = [
  { name: 'compute_time_seconds', label: 'Compute time × size', color: '--chart-rest', format: hours },
  { name: 'active_time_seconds', label: 'Active time', color: '--chart-p50', format: hours },
  { name: 'cpu_time_seconds', label: 'Processor time', color: '--chart-p99', format: hours },
  { name: 'written_data_bytes', label: 'WAL written', color: '--chart-images', format: bytes },
  { name: 'data_storage_bytes_hour', label: 'Storage', color: '--chart-p50', format: byteHours },
]
/** Charts are of these; all are in the table. */
export const CHARTED: Amount[] = ['compute_time_seconds', 'written_data_bytes', 'data_storage_bytes_hour']

/** One row for each timeframe, whether or not anything was measured in it. */
export function rowsOf(periods: ConsumptionPeriod[], starts: Date[], granularity: Granularity): UsageRow[] {
  const found = new Map(
    periods
      .flatMap((period) => period.consumption)
      .map((frame) => [new Date(frame.timeframe_start).getTime(), frame]),
  )
  return starts.map((start) => ({
    key: frameText(start, granularity),
    start,
    frame: found.get(start.getTime()) ?? null,
  }))
}

/** Sums over a range; storage too is one, of bytes by the hours they were held. */
export function totalOf(rows: Pick<UsageRow, 'frame'>[], name: Amount): number {
  return rows.reduce((sum, row) => sum + (row.frame?.[name] ?? 0), 0)
}

/** What is held by now: of the newest timeframe in which storage was asked. */
export function heldNow(rows: UsageRow[]): number | null {
  return (
    rows.findLast((row) => row.frame !== null && row.frame.synthetic_storage_size_bytes > 0)?.frame
      ?.synthetic_storage_size_bytes ?? null
  )
}

/** Cells that a spreadsheet reads as they are: one that would begin a formula begins with an apostrophe. */
function cell(value: string | number | null): string {
  if (value === null) return ''
  if (typeof value === 'number') return String(value)
  const harmless = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value
  return /[",\n\r]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless
}

export function csv(head: string[], rows: (string | number | null)[][]): string {
  return [head, ...rows].map((row) => `${row.map(cell).join(',')}\r\n`).join('')
}

const CSV_FIGURES: Amount[] = [
  ...FIGURES.map((figure) => figure.name),
  'synthetic_storage_size_bytes',
  'logical_size_bytes',
  'logical_size_bytes_hour',
]

/** With the units that the API has; times are in UTC. Timeframes in which nothing was measured have empty cells. */
export function csvOfRows(rows: UsageRow[]): string {
  return csv(
    ['timeframe_start', ...CSV_FIGURES],
    rows.map((row) => [row.start.toISOString(), ...CSV_FIGURES.map((name) => row.frame?.[name] ?? null)]),
  )
}
