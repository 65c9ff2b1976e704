import { expect, it } from 'vitest'

import type { BranchSafekeeper, BranchSafekeepers } from '~/api/types'

import { changeOf, choices, diskText, setRefusal, spare, votersOf } from './voters'

const member = (id: number, more: Partial<BranchSafekeeper> = {}): BranchSafekeeper => ({
  safekeeper_id: id,
  role: 'voter',
  disk: null,
  incarnation: 0,
  state: 'active',
  reason: null,
  term: 1,
  flush_lsn: '0/1',
  commit_lsn: '0/1',
  lag_bytes: 0,
  since: null,
  sick_since: null,
  ...more,
})

const held = (members: BranchSafekeeper[], available: number[] = []): BranchSafekeepers => ({
  generation: 1,
  generation_term: 1,
  reason: null,
  members,
  operation_id: null,
  wanted: null,
  available,
})

it('offers the members and what the installation has beside them, once each', () => {
  const log = held([member(3), member(1), member(2), member(4, { role: 'none' })], [4, 5])
  expect(votersOf(log)).toEqual([1, 2, 3])
  expect(choices(log)).toEqual([1, 2, 3, 4, 5])
})

it('says what a choice adds, takes away and makes again', () => {
  const log = held([member(1), member(2, { state: 'lost' }), member(3)], [4])
  expect(changeOf(log, [1, 3, 4])).toEqual({ added: [4], removed: [2], again: [] })
  expect(changeOf(log, [1, 2, 3])).toEqual({ added: [], removed: [], again: [2] })
})

it('refuses sets that no log has, that silent ones would have to join, and that are so already', () => {
  const log = held([member(1), member(2), member(3)], [4, 5])
  expect(setRefusal(log, [1, 2])).toBe('Choose 3 or 5.')
  expect(setRefusal(log, [1, 2, 3, 4])).toBe('Choose 3 or 5.')
  expect(setRefusal(log, [1, 2, 3])).toBe('These are its voters.')
  expect(setRefusal(log, [1, 2, 4])).toBeNull()
  expect(setRefusal(log, [1, 2, 3, 4, 5])).toBeNull()
  const silent = held([member(1), member(2), member(3), member(4, { role: 'none', state: 'unreachable' })], [4])
  expect(setRefusal(silent, [1, 2, 4])).toBe('Safekeeper 4 does not answer.')
  // One that does not answer may be left out.
  expect(setRefusal(held([member(1), member(2), member(3, { state: 'unreachable' })], [4]), [1, 2, 4])).toBeNull()
  expect(setRefusal(held([member(1)]), [])).toBe('Choose 1.')
})

it('lets the same set be chosen where a member lost its log or has only begun to receive it', () => {
  expect(setRefusal(held([member(1), member(2, { state: 'lost' }), member(3)]), [1, 2, 3])).toBeNull()
  expect(setRefusal(held([member(1), member(2), member(3), member(4, { role: 'learner' })]), [1, 2, 3])).toBeNull()
})

it('counts how many may be away', () => {
  expect([0, 1, 2, 3, 4, 5].map(spare)).toEqual([0, 0, 0, 1, 1, 2])
})

it('shortens disks', () => {
  expect(diskText('0123456789abcdef0123456789abcdef')).toBe('01234567')
  expect(diskText(null)).toBe('—')
})
