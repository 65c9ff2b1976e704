import { describe, expect, it } from 'vitest'

import type { Member, MemberRole, SessionUser } from '~/api/types'

import { decideRefusal, givenRoles, leaveRefusal, memberRefusal } from './can'

const user = (role: MemberRole | null, more: Partial<SessionUser> = {}): SessionUser => ({
  id: `u-${role ?? 'none'}`,
  name: 'x@example.org',
  email: 'x@example.org',
  operator: false,
  organization_id: 'o-1',
  role,
  person: { name: '', has_password: true, second_factor: false },
  project_id: null,
  read_only: false,
  ...more,
})

const member = (role: MemberRole, id: string = role): Member => ({
  member: { id: `m-${id}`, user_id: `u-${id}`, org_id: 'o-1', role, joined_at: '2026-01-01T00:00:00Z' },
  user: { email: `${id}@example.org`, name: id, has_mfa: false },
})

const all = [member('owner'), member('admin'), member('member'), member('viewer')]

describe('who decides on members', () => {
  it('is an admin, or an owner', () => {
    expect(decideRefusal(user('member'))).toContain('for an admin')
    expect(decideRefusal(user('admin'))).toBeNull()
    expect(decideRefusal(user('owner', { person: null, project_id: 'p-1' }))).toContain('project p-1')
  })

  it('gives no role above their own', () => {
    expect(givenRoles(user('member'))).toEqual([])
    expect(givenRoles(user(null))).toEqual([])
    expect(givenRoles(user('admin'))).toEqual(['viewer', 'member', 'admin'])
    expect(givenRoles(user('owner'))).toContain('owner')
  })

  it('does not decide on who is above them', () => {
    expect(memberRefusal(user('admin'), member('owner'), [...all, member('owner', 'second')])).toContain(
      'greater role',
    )
    expect(memberRefusal(user('admin'), member('admin'), all)).toBeNull()
    expect(memberRefusal(user('viewer'), member('viewer'), all)).toContain('viewer here')
  })

  it('leaves the last owner one', () => {
    expect(memberRefusal(user('owner'), member('owner'), all)).toContain('last owner')
    expect(memberRefusal(user('owner'), member('owner'), [...all, member('owner', 'second')])).toBeNull()
    expect(leaveRefusal(user('owner'), all)).toContain('last owner')
    expect(leaveRefusal(user('viewer'), all)).toBeNull()
    expect(leaveRefusal(user('owner', { person: null }), all)).toContain('API key')
  })
})
