import { describe, expect, it } from 'vitest'

import { parseRolloutSearch } from './search'

describe('the address of a rollout', () => {
  it('gives only what a filter can be', () => {
    expect(parseRolloutSearch({ states: ['baking', 3], wave: '1', cell: 'eu-1', q: '' })).toEqual({
      states: ['baking'],
      cell: 'eu-1',
    })
  })

  it('gives the view and the compute that is open', () => {
    expect(parseRolloutSearch({ view: 'list', compute: 'ep-a', wave: 1 })).toEqual({
      view: 'list',
      compute: 'ep-a',
      wave: 1,
    })
    expect(parseRolloutSearch({ view: 'map', compute: 3 })).toEqual({})
  })
})
