import type { BackupScheduleEntry, BackupScheduleItem } from '~/api/types'
import { span } from '~/lib/format'

export const WEEKDAYS = ['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday'] as const

const hour = (entry: BackupScheduleItem) => `${String(entry.hour ?? 0).padStart(2, '0')}:00 UTC`

/** When an entry's snapshots are taken: `Each Monday at 03:00 UTC`. */
export function whenText(entry: BackupScheduleItem): string {
  switch (entry.frequency) {
    case 'hourly':
      return 'Each hour'
    case 'daily':
      return `Each day at ${hour(entry)}`
    case 'weekly':
      return `Each ${WEEKDAYS[(entry.day ?? 1) - 1] ?? 'week'} at ${hour(entry)}`
    case 'monthly':
      return `Each month on day ${String(entry.day ?? 1)} at ${hour(entry)}`
  }
}

/** An entry as it is sent back: without what the API says of it alone. */
export function asItem({ frequency, hour: at, day, retention_seconds }: BackupScheduleEntry): BackupScheduleItem {
  return { frequency, retention_seconds, ...(at == null ? {} : { hour: at }), ...(day == null ? {} : { day }) }
}

/** How long each of its snapshots is kept. */
export const keptText = (entry: { retention_seconds: number }): string => span(entry.retention_seconds)
