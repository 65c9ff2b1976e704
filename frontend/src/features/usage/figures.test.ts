import { expect, it } from 'vitest'

import type { ConsumptionPeriod, ConsumptionTimeframe } from '~/api/types'

import { csv, csvOfRows, heldNow, rowsOf, totalOf } from './figures'

const frame = (start: string, more: Partial<ConsumptionTimeframe> = {}): ConsumptionTimeframe => ({
  timeframe_start: start,
  timeframe_end: start,
  active_time_seconds: 0,
  compute_time_seconds: 0,
  cpu_time_seconds: 0,
  written_data_bytes: 0,
  synthetic_storage_size_bytes: 0,
  data_storage_bytes_hour: 0,
  logical_size_bytes: 0,
  logical_size_bytes_hour: 0,
  ...more,
})
const STARTS = ['2026-10-31', '2026-11-01', '2026-11-02'].map((day) => new Date(`${day}T00:00:00Z`))
const PERIODS = [
  { period_id: 'a', consumption: [frame('2026-10-31T00:00:00Z', { active_time_seconds: 5 })] },
  {
    period_id: 'b',
    consumption: [frame('2026-11-02T00:00:00+00:00', { active_time_seconds: 7, synthetic_storage_size_bytes: 9 })],
  },
] as ConsumptionPeriod[]

it('has a row for each timeframe, those too in which nothing was measured', () => {
  const rows = rowsOf(PERIODS, STARTS, 'daily')
  expect(rows.map((row) => row.key)).toEqual(['2026-10-31', '2026-11-01', '2026-11-02'])
  expect(rows.map((row) => row.frame?.active_time_seconds)).toEqual([5, undefined, 7])
  expect(totalOf(rows, 'active_time_seconds')).toBe(12)
  expect(heldNow(rows)).toBe(9)
  expect(heldNow(rows.slice(0, 2))).toBeNull()
})

it('exports each row, and no figure where none was measured', () => {
  const lines = csvOfRows(rowsOf(PERIODS, STARTS, 'daily'))
    .trimEnd()
    .split('\r\n')
  expect(lines).toHaveLength(4)
  expect(lines[0]?.split(',').slice(0, 3)).toEqual(['timeframe_start', 'compute_time_seconds', 'active_time_seconds'])
  expect(lines[1]).toMatch(/^2026-10-31T00:00:00\.000Z,0,5,/)
  expect(lines[2]).toMatch(/^2026-11-01T00:00:00\.000Z,+$/)
})

it('writes names that are no formulas, and quotes what has to be quoted', () => {
  expect(csv(['a'], [['=1+1'], ['-2'], ['@x'], ['a,"b"'], ['plain'], [-2], [null]])).toBe(
    'a\r\n\'=1+1\r\n\'-2\r\n\'@x\r\n"a,""b"""\r\nplain\r\n-2\r\n\r\n',
  )
})
