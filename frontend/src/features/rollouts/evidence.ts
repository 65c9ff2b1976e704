import { bytes, bytesPerSecond, change, count, percent, perSecond, seconds } from '~/lib/format'
import type { Column } from '~/ui/Table'

type Format = (value: number | null | undefined) => string

const SUMMED = [
  { name: 'wal_bytes_per_second', label: 'WAL a second', format: bytesPerSecond },
  { name: 'wal_image_bytes_per_second', label: '— page images', format: bytesPerSecond },
  { name: 'wal_bytes_per_transaction', label: 'WAL a transaction', format: bytes },
  { name: 'wal_image_bytes_per_transaction', label: '— page images', format: bytes },
  { name: 'transactions_per_second', label: 'Transactions', format: perSecond },
  { name: 'commit_p50_seconds', label: 'Commit p50', format: seconds },
  { name: 'commit_p99_seconds', label: 'Commit p99', format: seconds },
  { name: 'storage_read_p50_seconds', label: 'Storage read p50', format: seconds },
  { name: 'storage_read_p99_seconds', label: 'Storage read p99', format: seconds },
  { name: 'chain_length_p99', label: 'Chain length at read p99', format: count },
] as const

/** What is compared before and after, in reading order, with its unit. */
export const EVIDENCE = [
  ...SUMMED,
  { name: 'downtime_seconds', label: 'Accepted no connections', format: seconds },
] as const

/** Of several computes together there is more to say: what storage pays for its images. */
export const TOGETHER = [
  ...SUMMED,
  { name: 'wal_paced_share', label: 'Time that WAL waited at its limit', format: percent },
  { name: 'storage_images_per_second', label: 'Images made by storage', format: perSecond },
  { name: 'storage_image_bytes_per_second', label: '— bytes', format: bytesPerSecond },
  { name: 'storage_images_pending', label: '— waiting at most', format: count },
] as const

type Change = { name: string; label: string; format: Format; before?: number | null; after?: number | null }

/** A table of figures before and after the switch. */
export function changeTable(caption: string, rows: Change[]) {
  const columns: Column<Change>[] = [
    { key: 'label', header: 'Measure', cell: (row) => row.label },
    { key: 'before', header: 'Before', numeric: true, cell: (row) => row.format(row.before) },
    { key: 'after', header: 'After', numeric: true, cell: (row) => row.format(row.after) },
    { key: 'change', header: 'Change', numeric: true, cell: (row) => change(row.before, row.after) },
  ]
  return { caption, rows, columns, rowKey: (row: Change) => row.name, empty: 'Nothing has been measured yet.' }
}
