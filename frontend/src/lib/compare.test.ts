import { expect, it } from 'vitest'

import { compare } from './compare'

it('orders numbers by size, and texts by the numbers in them', () => {
  expect([10, 9, -1].sort(compare)).toEqual([-1, 9, 10])
  expect(['Node 10', 'node 9', 'Äpfel', 'zebra'].sort(compare)).toEqual(['Äpfel', 'node 9', 'Node 10', 'zebra'])
  expect(['17.10', '17.9', '15.20'].sort(compare)).toEqual(['15.20', '17.9', '17.10'])
  expect([true, false].sort(compare)).toEqual([false, true])
})
