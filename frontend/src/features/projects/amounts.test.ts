import { describe, expect, it } from 'vitest'

import { sizeBytes, sizeFields, windowFields, windowSeconds } from './amounts'

describe('a history window', () => {
  it('reads in the unit that says it exactly', () => {
    expect([windowFields(604_800), windowFields(5_400), windowFields(0), windowFields(90)]).toEqual([
      { amount: '7', unit: 'days' },
      { amount: '90', unit: 'minutes' },
      { amount: '0', unit: 'days' },
      { amount: '1.5', unit: 'minutes' },
    ])
  })

  it('comes back as the seconds it was, and is bounded as the API bounds it', () => {
    for (const seconds of [0, 90, 5_400, 604_800]) {
      const { amount, unit } = windowFields(seconds)
      expect(windowSeconds(amount, unit)).toEqual({ seconds })
    }
    expect(windowSeconds('31', 'days')).toEqual({ error: 'At most 30 d.' })
    for (const wrong of ['', '-1', 'a week']) expect(windowSeconds(wrong, 'days')).toHaveProperty('error')
  })
})

describe('a quota', () => {
  it('comes back as the bytes it was', () => {
    for (const size of [48 * 2 ** 20, 2 ** 30, 1.5 * 2 ** 30]) {
      const { amount, unit } = sizeFields(size)
      expect(sizeBytes(amount, unit)).toEqual({ bytes: size })
    }
    expect(sizeBytes('2000000', 'TiB')).toEqual({ error: 'At most 8,192 TiB.' })
    for (const wrong of ['', '0', '-1', 'much']) expect(sizeBytes(wrong, 'GiB')).toHaveProperty('error')
  })
})
