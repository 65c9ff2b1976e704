import type { Branch, Snapshot } from '~/api/types'

/** What was asked of a project's snapshots. */
export type SnapshotAsk =
  | { what: 'create' }
  | { what: 'restore'; snapshot: Snapshot }
  | { what: 'delete'; snapshot: Snapshot }
  | { what: 'finalize'; branch: Branch }
