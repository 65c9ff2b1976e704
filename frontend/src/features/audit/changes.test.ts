import { expect, it } from 'vitest'

import { saidOf } from './changes'

it('sets what was before beside what came after', () => {
  expect(saidOf({ role: 'admin', role_before: 'member', why: 'asked' })).toEqual({
    changes: [{ name: 'role', before: 'member', after: 'admin' }],
    rest: [['why', 'asked']],
  })
})

it('takes a lone before as what the only other value was', () => {
  expect(saidOf({ safekeepers: [1, 2, 4], before: [1, 2, 3] })).toEqual({
    changes: [{ name: 'safekeepers', before: [1, 2, 3], after: [1, 2, 4] }],
    rest: [],
  })
  // Of several it could be any, and of none it is what the entry is about.
  expect(saidOf({ a: 1, b: 2, before: 3 }).changes).toEqual([])
  expect(saidOf({ before: 'br-1' })).toEqual({ changes: [], rest: [['before', 'br-1']] })
})

it('says of what is gone what it was, and leaves out what says nothing', () => {
  expect(saidOf({ limit_before: 3, limit: null, note: '' })).toEqual({
    changes: [{ name: 'limit', before: 3, after: null }],
    rest: [],
  })
  expect(saidOf({ limit_before: 3 }).changes).toEqual([{ name: 'limit', before: 3, after: undefined }])
  // A value that is false or 0 says something.
  expect(saidOf({ operator: false, count: 0 }).rest).toEqual([
    ['operator', false],
    ['count', 0],
  ])
})
