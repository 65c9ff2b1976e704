import { expect, it } from 'vitest'

import { exportPath } from './queries'
import { parseAudit } from './search'

it('keeps what names something, and nothing else', () => {
  expect(parseAudit({ project: ' p-1 ', resource: 'branch/br-1', other: 'x' })).toEqual({
    project: 'p-1',
    resource: 'branch/br-1',
  })
  expect(parseAudit({ project: ' ', resource: 7 })).toEqual({})
})

it('asks for the same entries as a file', () => {
  expect(exportPath({ project: 'p-1', action: 'role.' })).toBe('/api/v2/audit/export?action=role.&project_id=p-1')
})
