import { boundsOf } from '~/api/bounds'
import { zProjectQuota, zProjectUpdate } from '~/api/generated/zod/zod.gen'
import type { Project } from '~/api/types'
import { bytes, bytesPerSecond, span } from '~/lib/format'

/** Storage keeps at least this much, so that a point just chosen outlives the making of its branch. */
export const SHORTEST_WINDOW = 300
/** Seconds of history that a project may keep, by the API's own bound. */
export const LONGEST_WINDOW = boundsOf(zProjectUpdate.shape.history_retention_seconds).high
/** Bytes that a quota may be. */
const LARGEST_QUOTA = boundsOf(zProjectQuota.shape.logical_size_bytes).high

/** Bytes a second that a limit of WAL may be. */
const HIGHEST_WAL_RATE = boundsOf(zProjectQuota.shape.wal_bytes_per_second).high

const UNITS = { days: 86_400, hours: 3_600, minutes: 60 } as const
export type WindowUnit = keyof typeof UNITS
export const WINDOW_UNITS = Object.keys(UNITS) as WindowUnit[]

/** A window as a number of the largest unit that says it exactly. */
export function windowFields(seconds: number): { amount: string; unit: WindowUnit } {
  const unit = seconds === 0 ? 'days' : (WINDOW_UNITS.find((each) => seconds % UNITS[each] === 0) ?? 'minutes')
  return { amount: String(seconds / UNITS[unit]), unit }
}

/** Seconds of what was typed, or why it is none. */
export function windowSeconds(amount: string, unit: WindowUnit): { seconds: number } | { error: string } {
  const value = Number(amount.trim().replace(',', '.'))
  if (amount.trim() === '' || !Number.isFinite(value) || value < 0) return { error: 'A number, 0 or more.' }
  const seconds = Math.round(value * UNITS[unit])
  return seconds > LONGEST_WINDOW ? { error: `At most ${span(LONGEST_WINDOW)}.` } : { seconds }
}

const SIZES = { MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 } as const
export type SizeUnit = keyof typeof SIZES
export const SIZE_UNITS = Object.keys(SIZES) as SizeUnit[]

/** A quota as a number of the largest unit that says it exactly. */
export function sizeFields(limit: number): { amount: string; unit: SizeUnit } {
  if (limit <= 0) return { amount: '', unit: 'GiB' }
  const unit = SIZE_UNITS.findLast((each) => limit % SIZES[each] === 0) ?? 'MiB'
  return { amount: String(limit / SIZES[unit]), unit }
}

/** Bytes of what was typed in units of so many, or why it is no limit. */
function typedBytes(amount: string, unit: number, most: number, words: (bytes: number) => string) {
  const value = Number(amount.trim().replace(',', '.'))
  if (amount.trim() === '' || !Number.isFinite(value) || value <= 0) return { error: 'A number above 0.' }
  const size = Math.round(value * unit)
  return size > most ? { error: `At most ${words(most)}.` } : { bytes: size }
}

/** Bytes of what was typed, or why it is no quota. */
export const sizeBytes = (amount: string, unit: SizeUnit): { bytes: number } | { error: string } =>
  typedBytes(amount, SIZES[unit], LARGEST_QUOTA, bytes)

/** The limit of WAL of each compute of a project, bytes a second; 0 is none. */
export function walRateOf(project: Project): number {
  const { quota } = project.settings as { quota?: { wal_bytes_per_second?: number | null } | null }
  return quota?.wal_bytes_per_second ?? 0
}

/** A limit of WAL in MiB a second, as text to change. */
export const rateField = (limit: number): string => (limit > 0 ? String(limit / SIZES.MiB) : '')

/** Bytes a second of what was typed in MiB, or why it is no limit. */
export const rateBytes = (amount: string): { bytes: number } | { error: string } =>
  typedBytes(amount, SIZES.MiB, HIGHEST_WAL_RATE, bytesPerSecond)
