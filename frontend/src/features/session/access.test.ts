import { describe, expect, it } from 'vitest'

import type { SessionUser } from '~/api/types'

import { covers, NEEDS, personRefusal, refusal } from './access'

const user = (more: Partial<SessionUser> = {}): SessionUser => ({
  id: 'u-1',
  name: 'ada@example.org',
  email: 'ada@example.org',
  operator: false,
  organization_id: 'o-1',
  role: 'viewer',
  person: { name: 'Ada', has_password: true, second_factor: false },
  project_id: null,
  read_only: false,
  ...more,
})

describe('what who is signed in may do', () => {
  it('goes by the order of roles', () => {
    expect(covers('admin', 'member')).toBe(true)
    expect(covers('admin', 'admin')).toBe(true)
    expect(covers('admin', 'owner')).toBe(false)
  })

  it('is refused with the role that it takes', () => {
    expect(refusal(user(), { least: 'viewer' })).toBeNull()
    expect(refusal(user(), { least: 'admin' })).toBe('You are a viewer here. This is for an admin or a greater role.')
    expect(refusal(user({ role: 'admin' }), { least: 'owner' })).toBe('You are an admin here. This is for an owner.')
  })

  it('is nothing for who is in no organisation', () => {
    expect(refusal(user({ role: null }), { least: 'viewer' })).toContain('no organisation')
  })

  it('is, with a key, what the key is for', () => {
    const reads = user({ person: null, read_only: true })
    expect(refusal(reads, { least: 'member' })).toContain('only reads')
    const narrow = user({ person: null, role: 'owner', project_id: 'p-1' })
    expect(refusal(narrow, { least: 'viewer', whole: true })).toContain('project p-1 alone')
    expect(refusal(narrow, { least: 'admin' })).toBeNull()
  })

  it('is what runs the installation for operators alone', () => {
    const runs = NEEDS.runs
    expect(refusal(user({ role: 'owner' }), runs)).toContain('operators')
    expect(refusal(user({ role: 'owner', operator: true }), runs)).toBeNull()
    expect(refusal(user({ role: 'member', operator: true }), runs)).toContain('an admin')
  })

  it('is not a person’s own matters, with a key', () => {
    expect(personRefusal(user())).toBeNull()
    expect(personRefusal(user({ person: null }))).toContain('Sign in with email and password')
  })
})
