import { expect, it } from 'vitest'

import { asItem, keptText, whenText } from './schedule-text'

it('says when snapshots are taken', () => {
  const kept = { retention_seconds: 604_800 }
  expect(whenText({ frequency: 'hourly', ...kept })).toBe('Each hour')
  expect(whenText({ frequency: 'daily', hour: 3, ...kept })).toBe('Each day at 03:00 UTC')
  expect(whenText({ frequency: 'daily', ...kept })).toBe('Each day at 00:00 UTC')
  expect(whenText({ frequency: 'weekly', day: 7, hour: 23, ...kept })).toBe('Each Sunday at 23:00 UTC')
  expect(whenText({ frequency: 'monthly', day: 31, ...kept })).toBe('Each month on day 31 at 00:00 UTC')
  expect(keptText(kept)).toBe('7 d')
})

it('sends an entry back as it was set', () => {
  const shown = {
    frequency: 'hourly',
    hour: null,
    day: null,
    retention_seconds: 3600,
    next_at: '2026-01-01',
  } as const
  expect(asItem(shown)).toEqual({ frequency: 'hourly', retention_seconds: 3600 })
  expect(asItem({ ...shown, frequency: 'weekly', hour: 0, day: 2 })).toEqual({
    frequency: 'weekly',
    hour: 0,
    day: 2,
    retention_seconds: 3600,
  })
})
