import { expect, it } from 'vitest'

import { idleTimes, idleTimeText } from './idle-time'

it.each([
  [0, 'never'],
  [-1, 'never'],
  [45, 'after 45 s'],
  [90, 'after 90 s'],
  [300, 'after 5 min'],
  [3_600, 'after 1 h'],
  [172_800, 'after 2 d'],
])('says %d s as "%s"', (seconds, words) => {
  expect(idleTimeText(seconds)).toBe(words)
})

it('offers the time of now beside the usual ones, each once', () => {
  expect(idleTimes(300).filter((each) => each === 300)).toHaveLength(1)
  expect(idleTimes(450)).toContain(450)
  expect(idleTimes(-1)[0]).toBe(0)
})
