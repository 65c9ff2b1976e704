/** Text for quantities. Every number a person sees carries its unit. */

const BYTE_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const

function scaled(value: number, digits: number): string {
  return value.toLocaleString('en-GB', { maximumFractionDigits: digits, minimumFractionDigits: 0 })
}

/** `1536` -> `1.5 KiB`. Null and NaN (no data) read as an em dash. */
export function bytes(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return '—'
  let size = Math.abs(value)
  let unit = 0
  while (size >= 1024 && unit < BYTE_UNITS.length - 1) {
    size /= 1024
    unit += 1
  }
  return `${value < 0 ? '−' : ''}${scaled(size, size < 10 && unit > 0 ? 2 : size < 100 && unit > 0 ? 1 : 0)} ${BYTE_UNITS[unit] ?? 'B'}`
}

export function bytesPerSecond(value: number | null | undefined): string {
  const text = bytes(value)
  return text === '—' ? text : `${text}/s`
}

/** Seconds to the unit a person would choose: `0.00042` -> `420 µs`. */
export function seconds(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return '—'
  const size = Math.abs(value)
  if (size === 0) return '0 ms'
  if (size < 0.001) return `${scaled(value * 1e6, 0)} µs`
  if (size < 1) return `${scaled(value * 1e3, size < 0.01 ? 2 : 1)} ms`
  if (size < 120) return `${scaled(value, 1)} s`
  if (size < 7200) return `${scaled(value / 60, 0)} min`
  return `${scaled(value / 3600, 1)} h`
}

/** A length of time that a person chose, such as a window: `0` is `0 s`, not a fraction of anything. */
export function duration(value: number | null | undefined): string {
  return value === 0 ? '0 s' : seconds(value)
}

const SPANS = [
  ['d', 86_400],
  ['h', 3_600],
  ['min', 60],
  ['s', 1],
] as const

/** A span that was set to the second, said exactly: `129600` is `1 d 12 h`. */
export function span(value: number): string {
  let left = Math.round(value)
  const parts = SPANS.flatMap(([unit, size]) => {
    const whole = Math.floor(left / size)
    left -= whole * size
    return whole > 0 ? [`${count(whole)} ${unit}`] : []
  })
  return parts.join(' ') || '0 s'
}

/** Whether a version of Postgres comes after another: 15.9 before 15.18. */
export function isNewer(version: string, than: string): boolean {
  const [parts, others] = [version, than].map((text) => (text.match(/\d+/g) ?? []).map(Number))
  if (!parts || !others) return false
  for (let index = 0; index < Math.max(parts.length, others.length); index += 1) {
    const difference = (parts[index] ?? 0) - (others[index] ?? 0)
    if (difference !== 0) return difference > 0
  }
  return false
}

/** `1 compute`, `1,250 computes`. */
export function computes(value: number | null | undefined): string {
  return `${count(value)} ${value === 1 ? 'compute' : 'computes'}`
}

export function perSecond(value: number | null | undefined, what = ''): string {
  if (value == null || !Number.isFinite(value)) return '—'
  return `${scaled(value, value < 10 ? 2 : 0)}${what && ` ${what}`}/s`
}

export function count(value: number | null | undefined): string {
  return value == null || !Number.isFinite(value)
    ? '—'
    : scaled(value, value < 10 && !Number.isInteger(value) ? 2 : 0)
}

export function percent(share: number | null | undefined, digits = 1): string {
  return share == null || !Number.isFinite(share) ? '—' : `${scaled(share * 100, digits)} %`
}

/** Change from `before` to `after` as a signed percentage; an em dash when either is missing or before is 0. */
export function change(before: number | null | undefined, after: number | null | undefined): string {
  if (before == null || after == null || !Number.isFinite(before) || !Number.isFinite(after) || before === 0)
    return '—'
  const ratio = after / before - 1
  const sign = ratio > 0 ? '+' : ratio < 0 ? '−' : ''
  return `${sign}${scaled(Math.abs(ratio) * 100, Math.abs(ratio) < 0.1 ? 1 : 0)} %`
}

/** `2026-03-01T10:02:03Z` -> local date and time to the second. */
export function time(value: string | number | Date | null | undefined): string {
  if (value == null) return '—'
  const date = new Date(value)
  if (Number.isNaN(date.getTime())) return '—'
  return date.toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'medium' })
}

/** How long ago, in the largest sensible unit. `now` is passed in so that text can be tested. */
export function ago(value: string | null | undefined, now: number): string {
  if (!value) return '—'
  const elapsed = (now - new Date(value).getTime()) / 1000
  if (!Number.isFinite(elapsed)) return '—'
  if (elapsed < 5) return 'just now'
  if (elapsed < 60) return `${Math.round(elapsed)} s ago`
  if (elapsed < 3600) return `${Math.round(elapsed / 60)} min ago`
  if (elapsed < 86400) return `${Math.round(elapsed / 3600)} h ago`
  return `${Math.round(elapsed / 86400)} d ago`
}

/** How long it is until then, in the largest sensible unit: `in 6 d`. `now` is passed in so that text can be tested. */
export function until(value: string, now: number): string {
  const left = (new Date(value).getTime() - now) / 1000
  if (!Number.isFinite(left)) return '—'
  if (left <= 0) return 'now'
  if (left < 60) return `in ${Math.ceil(left)} s`
  if (left < 3600) return `in ${Math.round(left / 60)} min`
  if (left < 86400) return `in ${Math.round(left / 3600)} h`
  return `in ${Math.round(left / 86400)} d`
}
