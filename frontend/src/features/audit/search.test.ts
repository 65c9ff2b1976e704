import { expect, it } from 'vitest'

import { exportPath } from './queries'
import { kindOf, parseAudit } from './search'

it('keeps what names something, and nothing else', () => {
  expect(parseAudit({ project: ' p-1 ', resource: 'branch/br-1', other: 'x' })).toEqual({
    project: 'p-1',
    resource: 'branch/br-1',
  })
  expect(parseAudit({ project: ' ', resource: 7 })).toEqual({})
})

it('keeps moments as the API takes them, whatever the time zone they were given in', () => {
  expect(parseAudit({ since: '2026-03-01T10:00:00+02:00' })).toEqual({ since: '2026-03-01T08:00:00.000Z' })
  const typed = '2026-03-01T10:00'
  expect(parseAudit({ until: typed })).toEqual({ until: new Date(typed).toISOString() })
  expect(parseAudit({ since: 'yesterday', until: '' })).toEqual({})
})

it('asks for the same entries as a file', () => {
  expect(exportPath({ project: 'p-1', action: 'role.' })).toBe('/api/v2/audit/export?action=role.&project_id=p-1')
  expect(exportPath({ since: '2026-03-01T08:00:00.000Z' })).toBe(
    '/api/v2/audit/export?since=2026-03-01T08%3A00%3A00.000Z',
  )
})

it('knows the kind of an action, and of all of a kind', () => {
  expect(kindOf('member.update')).toBe('member')
  expect(kindOf('api_key.')).toBe('api_key')
  expect(kindOf('role')).toBe('')
  expect(kindOf(undefined)).toBe('')
})
