import { expect, it } from 'vitest'

import { loadNote, sizeText } from './size'

const load = { processors: 0.456, memory_bytes: 3 << 20, buffer_hits_per_second: 0, buffer_reads_per_second: 0 }

it('says what a compute is and what it does', () => {
  expect(sizeText(0.25)).toBe('0.25 CU')
  expect(loadNote(undefined)).toBeUndefined()
  expect(loadNote(load)).toBe('0.46 processors, 3 MiB used')
  expect(loadNote({ ...load, buffer_hits_per_second: 90, buffer_reads_per_second: 10 })).toBe(
    '0.46 processors, 3 MiB used, 90% of pages from memory',
  )
})
