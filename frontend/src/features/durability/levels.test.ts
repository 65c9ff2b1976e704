import { expect, it } from 'vitest'

import { FACTS, forbidden, givenUp, isWeaker, LEVELS, MISHAPS } from './levels'

it('orders levels from the weakest, and no stronger one survives less', () => {
  const rank = { no: 0, mostly: 1, yes: 2 }
  for (const [index, level] of LEVELS.entries()) {
    for (const stronger of LEVELS.slice(index + 1)) {
      expect(isWeaker(level, stronger)).toBe(true)
      expect(isWeaker(stronger, level)).toBe(false)
      for (const mishap of Object.keys(MISHAPS) as (keyof typeof MISHAPS)[]) {
        expect(rank[FACTS[stronger].survives[mishap]]).toBeGreaterThanOrEqual(rank[FACTS[level].survives[mishap]])
      }
    }
  }
})

it('names what a weaker level gives up, and nothing for a stronger one', () => {
  expect(givenUp('flush', 'receive')).toEqual(['machine', 'machines', 'disk'])
  expect(givenUp('flush', 'off')).toEqual(['process', 'machine', 'machines', 'disk'])
  expect(givenUp('apply', 'flush')).toEqual([])
  expect(givenUp('off', 'apply')).toEqual([])
})

it('says whose policy forbids a level', () => {
  const levels = LEVELS.map((level) => ({
    level,
    synchronous_commit: '',
    forbidden_by: level === 'off' ? ('installation' as const) : null,
  }))
  const durability = { branch_id: 'br', level: 'flush' as const, effective: 'flush' as const, levels }
  expect(forbidden(durability, 'off')).toBe('Forbidden by the policy of the installation.')
  expect(forbidden(durability, 'receive')).toBeNull()
})
