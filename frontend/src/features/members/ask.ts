import type { Invitation, Member } from '~/api/types'

/** What was asked of an organisation's members. */
export type MemberAsk =
  | { what: 'add' | 'invite' | 'leave' }
  | { what: 'role' | 'remove'; member: Member }
  | { what: 'revoke'; invitation: Invitation }
