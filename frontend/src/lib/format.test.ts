import { describe, expect, it } from 'vitest'

import { ago, bytes, bytesPerSecond, change, computes, duration, isNewer, percent, seconds, until } from './format'

describe('format', () => {
  it('chooses a byte unit and keeps three significant figures or fewer', () => {
    expect(bytes(0)).toBe('0 B')
    expect(bytes(1536)).toBe('1.5 KiB')
    expect(bytes(58 * 1024)).toBe('58 KiB')
    expect(bytesPerSecond(30 * 1024 * 1024)).toBe('30 MiB/s')
  })

  it('shows missing data as an em dash, never as zero', () => {
    for (const text of [bytes(null), bytes(NaN), seconds(undefined), percent(null), change(0, 5), change(3, null)]) {
      expect(text).toBe('—')
    }
  })

  it('chooses a time unit', () => {
    expect(seconds(0.00042)).toBe('420 µs')
    expect(seconds(0.0123)).toBe('12.3 ms')
    expect(seconds(4.25)).toBe('4.3 s')
    expect(seconds(600)).toBe('10 min')
  })

  it('signs a change', () => {
    expect(change(100, 6)).toBe('−94 %')
    expect(change(100, 105)).toBe('+5 %')
  })

  it('says how long ago', () => {
    expect(ago('2026-01-01T00:00:00Z', Date.parse('2026-01-01T00:03:00Z'))).toBe('3 min ago')
  })

  it('says how long it is until then', () => {
    const end = '2026-01-08T00:00:00Z'
    const before = (ms: number) => until(end, Date.parse(end) - ms)
    expect([0, 1, 59_001, 60_000, 5_400_000, 86_400_000, 7 * 86_400_000 - 1].map(before)).toEqual([
      'now',
      'in 1 s',
      'in 60 s',
      'in 1 min',
      'in 2 h',
      'in 1 d',
      'in 7 d',
    ])
    expect([before(-1), until('no date', 0)]).toEqual(['now', '—'])
  })
})

it('orders versions by their numbers', () => {
  expect([
    isNewer('15.20', '15.18'),
    isNewer('15.18', '15.9'),
    isNewer('15.9', '15.18'),
    isNewer('15.18', '15.18'),
  ]).toEqual([true, true, false, false])
  expect([isNewer('16.0', '15.20'), isNewer('17beta1', '15.20')]).toEqual([true, true])
})

it('counts computes, and lengths of time that people chose', () => {
  expect([computes(1), computes(1250), computes(null)]).toEqual(['1 compute', '1,250 computes', '— computes'])
  expect([duration(0), duration(60), duration(null)]).toEqual(['0 s', '60 s', '—'])
})
