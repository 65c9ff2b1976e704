import { expect, it } from 'vitest'

import { parseAudit } from './search'

it('keeps what names something, and nothing else', () => {
  expect(parseAudit({ project: ' p-1 ', resource: 'branch/br-1', other: 'x' })).toEqual({
    project: 'p-1',
    resource: 'branch/br-1',
  })
  expect(parseAudit({ project: ' ', resource: 7 })).toEqual({})
})
