export const RANGES = {
  day: { label: 'Last 24 hours', granularity: 'hourly', frames: 24 },
  week: { label: 'Last 7 days, by hours', granularity: 'hourly', frames: 168 },
  month: { label: 'Last 30 days', granularity: 'daily', frames: 30 },
  year: { label: 'Last 12 months', granularity: 'monthly', frames: 12 },
} as const

export type RangeName = keyof typeof RANGES
export type Granularity = (typeof RANGES)[RangeName]['granularity']
export type UsageSearch = { range?: RangeName }

export const USUAL_RANGE: RangeName = 'month'

/** The page's address as a range; what makes no sense is left out. */
export function parseUsage(search: Record<string, unknown>): UsageSearch {
  const { range } = search
  return typeof range === 'string' && Object.hasOwn(RANGES, range) ? { range: range as RangeName } : {}
}

/** When the hour, day or month, `back` before that of `now`, began; all in UTC, as usage is kept. */
function begin(now: Date, granularity: Granularity, back: number): Date {
  const [year, month, day, hour] = [now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate(), now.getUTCHours()]
  if (granularity === 'hourly') return new Date(Date.UTC(year, month, day, hour - back))
  if (granularity === 'daily') return new Date(Date.UTC(year, month, day - back))
  return new Date(Date.UTC(year, month - back, 1))
}

/** Begins of all timeframes of a range, the current one last, and where it ends. */
export function framesOf(range: RangeName, now: Date): { starts: Date[]; end: Date } {
  const { granularity, frames } = RANGES[range]
  const starts = Array.from({ length: frames }, (_, index) => begin(now, granularity, frames - 1 - index))
  return { starts, end: begin(now, granularity, -1) }
}

/** `2026-11-20 10:00`, `2026-11-20` or `2026-11`: in UTC, and sorted as text it is sorted by time. */
export function frameText(start: Date, granularity: Granularity): string {
  const text = start.toISOString()
  if (granularity === 'hourly') return `${text.slice(0, 10)} ${text.slice(11, 16)}`
  return text.slice(0, granularity === 'daily' ? 10 : 7)
}
