import { describe, expect, it } from 'vitest'

import type { Rollout } from '~/api/types'

import { consequence, controlRefusal } from './can'

const wave = (index: number, name: string, state: string, computes_total: number) => ({
  index,
  name,
  state,
  computes_total,
  counts: {},
})

const rollout = (change: object): Rollout =>
  ({
    status: 'held',
    status_reason: 'the canary is inconclusive',
    current_wave: 0,
    switched_total: 12,
    counts: { passed: 11, baking: 1 },
    waves: [wave(0, 'canary', 'held', 1), wave(1, '5 %', 'pending', 1_250)],
    ...change,
  }) as unknown as Rollout

describe('the controls of a rollout', () => {
  it('are possible in the states in which they mean something, and say why not in the others', () => {
    const allowed = (status: string) =>
      (['pause', 'resume', 'approve', 'skip', 'abort', 'rollback'] as const).filter(
        (control) => controlRefusal(control, rollout({ status })) === null,
      )
    expect(allowed('running')).toEqual(['pause', 'skip', 'abort', 'rollback'])
    expect(allowed('paused')).toEqual(['resume', 'skip', 'abort', 'rollback'])
    expect(allowed('held')).toEqual(['pause', 'approve', 'skip', 'abort', 'rollback'])
    expect(allowed('completed')).toEqual(['rollback'])
    expect(controlRefusal('abort', rollout({ status: 'rolled_back' }))).toBe('The rollout is rolled back.')
    expect(controlRefusal('rollback', rollout({ switched_total: 0 }))).toContain('No compute is switched')
  })

  it('say what approving opens and why it was held', () => {
    expect(consequence('approve', rollout({}), null)).toBe(
      'Wave “5 %” begins: 1,250 computes. It is held because: the canary is inconclusive',
    )
  })

  it('say how many computes stay and go', () => {
    expect(consequence('abort', rollout({}), null)).toContain('11 computes that passed stay switched')
    expect(consequence('rollback', rollout({}), null)).toContain('12 computes that this rollout switched')
    expect(consequence('rollback', rollout({}), { wave: 1 })).toContain('wave “5 %”')
    expect(consequence('rollback', rollout({}), { compute_id: 'ep-a' })).toContain('The rollout goes on without it')
  })
})
