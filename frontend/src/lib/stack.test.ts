import { expect, it } from 'vitest'

import { stack } from './stack'

it('stacks parts and keeps gaps as gaps', () => {
  const parts = [{ values: [1, 2, null] }, { values: [10, null, 30] }]
  expect(stack(parts)).toEqual([
    [1, 2, null],
    [11, null, null],
  ])
})
