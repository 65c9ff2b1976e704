import { describe, expect, it } from 'vitest'

import type { BranchHistory } from '~/api/types'
import { localField } from '~/lib/local-time'

import { lsnValue, pointRefusal, shareOf, strip } from './history-window'

const history: BranchHistory = {
  branch_id: 'br-main',
  oldest_lsn: '0/1500000',
  oldest_timestamp: '2026-01-02T00:00:00.500000Z',
  newest_lsn: '1/0',
  newest_timestamp: '2026-01-03T00:00:00Z',
  branch_points: [
    { branch_id: 'br-old', name: 'old', lsn: '0/1400000', timestamp: '2026-01-01T00:00:00Z' },
    { branch_id: 'br-side', name: 'side', lsn: '0/1600000', timestamp: '2026-01-03T00:00:00.25Z' },
    { branch_id: 'br-made', name: 'being made', lsn: '0/1700000' },
  ],
}
const now = Date.parse('2026-01-04T00:00:00Z')

describe('a point of a branch’s past', () => {
  it('compares LSNs as the 64 bits they are', () => {
    expect(lsnValue('1/0')).toBe(2 ** 32)
    expect((lsnValue('0/FFFFFFFF') ?? 0) < (lsnValue('1/0') ?? 0)).toBe(true)
    expect([lsnValue('1500000'), lsnValue('0/15000000F'), lsnValue('0/xyz')]).toEqual([null, null, null])
  })

  it('is refused outside the history, with where that begins', () => {
    expect(pointRefusal({ from: 'lsn', at: '0/14FFFFF' }, history, now)).toContain('0/1500000')
    expect(pointRefusal({ from: 'lsn', at: 'yesterday' }, history, now)).toContain('hexadecimal')
    expect(
      pointRefusal({ from: 'timestamp', at: localField(Date.parse('2026-01-01T23:59:59Z')) }, history, now),
    ).toContain('Older than the history')
    expect(pointRefusal({ from: 'timestamp', at: localField(now + 1000) }, history, now)).toContain('still to come')
  })

  it('is let pass inside it, to the second in which the history begins, and where the history is not known', () => {
    expect(pointRefusal({ from: 'lsn', at: '0/1500000' }, history, now)).toBeNull()
    expect(
      pointRefusal({ from: 'timestamp', at: localField(Date.parse('2026-01-02T00:00:00Z')) }, history, now),
    ).toBeNull()
    expect(pointRefusal({ from: 'head', at: '' }, history, now)).toBeNull()
    expect(pointRefusal({ from: 'lsn', at: '0/1' }, undefined, now)).toBeNull()
  })

  it('survives the way through a field of local time', () => {
    expect(new Date(localField(now)).getTime()).toBe(now)
  })
})

describe('the strip of a history', () => {
  it('reaches from the oldest commit to now, with branch points in it; older ones lie at its beginning', () => {
    const drawn = strip(history, '2025-12-01T00:00:00Z', now)
    expect([drawn.from, drawn.to, drawn.untimed]).toEqual([Date.parse('2026-01-02T00:00:00.5Z'), now, 1])
    expect(drawn.marks.map((mark) => [mark.name, Math.round(mark.share * 100)])).toEqual([
      ['old', 0],
      ['side', 50],
    ])
  })

  it('begins with the project while everything is kept', () => {
    expect(strip({ ...history, oldest_timestamp: null }, '2026-01-01T12:00:00Z', now).from).toBe(
      Date.parse('2026-01-01T12:00:00Z'),
    )
  })

  it('has a length even in the second in which it begins', () => {
    expect(shareOf(5, 5, 5)).toBe(0)
    expect(strip(history, '', Date.parse('2026-01-02T00:00:00Z')).from).toBeLessThan(
      Date.parse('2026-01-02T00:00:00Z'),
    )
  })
})
