import { expect, it } from 'vitest'

import type { ComputeDetail } from '~/api/types'

import { prewarmNote, prewarmText } from './prewarm'

type Prewarm = NonNullable<ComputeDetail['prewarm']>

const of = (state: Prewarm['state'], more: Partial<Prewarm> = {}): Prewarm => ({
  state,
  pages_listed: 1_234,
  ...more,
})

it.each([
  [undefined, '—', undefined],
  [of('off', { pages_listed: 0 }), 'off', 'switched off for this compute'],
  [of('off', { reason: 'this server has no library' }), 'off', 'this server has no library'],
  [of('no_list'), 'cold', 'a first start, or one after a crash'],
  [of('ignored', { reason: 'it is torn' }), 'cold', 'it is torn'],
  [of('loading'), 'loading 1,234 pages', 'behind the queries of clients'],
  [of('loaded', { pages_loaded: 1_200, seconds: 0.84 }), '1,200 of 1,234 pages', 'in memory 0.8 s after the start'],
  [of('loaded', { seconds: 6 }), '1,234 pages', 'in memory 6.0 s after the start'],
  [of('stopped', { reason: 'a session waited', seconds: 1 }), 'stopped', 'a session waited'],
])('says how warm a start was: %o', (prewarm, text, note) => {
  expect(prewarmText(prewarm)).toBe(text)
  expect(prewarmNote(prewarm)).toBe(note)
})
