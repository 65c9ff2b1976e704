import { expect, it } from 'vitest'

import { framesOf, frameText, parseUsage, RANGES, type RangeName } from './range'

const NOW = new Date('2026-03-01T00:30:00Z')

it('takes of an address only a range that there is', () => {
  expect(parseUsage({ range: 'week' })).toEqual({ range: 'week' })
  for (const wrong of ['century', 'toString', 7, null, ['week']]) expect(parseUsage({ range: wrong })).toEqual({})
})

it.each(Object.keys(RANGES) as RangeName[])(
  'has each timeframe of %s once, and ends after the current one',
  (range) => {
    const { starts, end } = framesOf(range, NOW)
    const texts = starts.map((start) => frameText(start, RANGES[range].granularity))
    expect(new Set(texts).size).toBe(RANGES[range].frames)
    expect([...texts].sort()).toEqual(texts)
    expect(starts.at(-1)?.getTime()).toBeLessThanOrEqual(NOW.getTime())
    expect(end.getTime()).toBeGreaterThan(NOW.getTime())
  },
)

it('knows months of other lengths, and hours of the day before', () => {
  expect(frameText(framesOf('year', NOW).starts[0] ?? NOW, 'monthly')).toBe('2025-04')
  expect(frameText(framesOf('month', NOW).starts[0] ?? NOW, 'daily')).toBe('2026-01-31')
  expect(frameText(framesOf('day', NOW).starts[0] ?? NOW, 'hourly')).toBe('2026-02-28 01:00')
  expect(framesOf('year', new Date('2026-12-31T23:59:59Z')).end.toISOString()).toBe('2027-01-01T00:00:00.000Z')
})
