import type { Member } from '~/api/types'

/** What was asked of an organisation's members. */
export type MemberAsk = { what: 'add' } | { what: 'role' | 'remove'; member: Member } | { what: 'leave' }
