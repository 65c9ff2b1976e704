import type { MemberRole } from '~/api/types'

/** What each role may do beyond the one before it; `weir.authz.rules` has each operation. */
export const ROLE_TEXT: Record<MemberRole, string> = {
  viewer: 'Sees everything but passwords and the audit log.',
  member:
    'Works in projects: makes projects, and changes branches, computes, databases, roles of Postgres and snapshots. Is shown their passwords. Makes API keys.',
  admin:
    'Changes the settings of projects and deletes them, runs rollouts, decides on members and everybody’s keys, and reads the audit log.',
  owner: 'Makes owners, and decides on them. An organisation that has had an owner keeps one.',
}
