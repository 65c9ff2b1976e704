import type { BranchDatabase, Role } from '~/api/types'

/** What was asked of a branch's roles and databases. */
export type DatabaseAsk =
  | { what: 'create-role' }
  | { what: 'create-database' }
  | { what: 'reset-password' | 'delete-role'; role: Role }
  | { what: 'change-owner' | 'delete-database'; database: BranchDatabase }
