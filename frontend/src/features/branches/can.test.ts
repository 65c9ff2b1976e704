import { describe, expect, it } from 'vitest'

import type { Branch, Endpoint } from '~/api/types'

import { branchesBelow } from './branch-tree'
import {
  deleteRefusal,
  detachRefusal,
  leaving,
  mustPreserve,
  preservedName,
  quotaUse,
  restoreRefusal,
  restoreSteps,
} from './can'

const branch = (id: string, parent: string | null, more: Partial<Branch> = {}) =>
  ({
    id,
    name: id,
    parent_id: parent,
    created_at: '2026-01-01',
    current_state: 'ready',
    default: false,
    protected: false,
    ...more,
  }) as unknown as Branch
const endpoint = (id: string, of: string, state = 'active') =>
  ({ id, branch_id: of, current_state: state }) as unknown as Endpoint

const main = branch('main', null, { default: true })
const dev = branch('dev', 'main', { logical_size: 25 * 2 ** 20 })
const test = branch('test', 'dev')
const all = [main, dev, test]

describe('deleting a branch', () => {
  it('takes all that is below, and lists it with its computes and data', () => {
    expect(branchesBelow(all, 'main').map((each) => each.id)).toEqual(['dev', 'test'])
    expect(branchesBelow(all, 'test')).toEqual([])
    expect(
      leaving(dev, [test], [endpoint('ep-1', 'dev'), endpoint('ep-2', 'main')]).map((each) => each.text),
    ).toEqual(['dev, 25 MiB of data, with compute ep-1', 'test'])
  })

  it('is refused for what must stay, whoever is asked to go', () => {
    expect(deleteRefusal(main, [dev, test])).toContain('default')
    expect(deleteRefusal(branch('dev', 'main', { protected: true }), [])).toContain('protected')
    expect(deleteRefusal(dev, [branch('test', 'dev', { protected: true })])).toContain('test')
    expect(deleteRefusal(branch('before', null), [main])).toContain('main')
    expect(deleteRefusal(dev, [test])).toBeNull()
  })
})

it('detaches a branch that is ready, protected or not', () => {
  expect(detachRefusal(branch('dev', 'main', { protected: true }))).toBeNull()
  expect(detachRefusal(branch('dev', 'main', { current_state: 'init' }))).toContain('init')
})

describe('restoring a branch', () => {
  it('is refused for one that is protected or on its way', () => {
    expect(restoreRefusal(branch('dev', 'main', { protected: true }))).toContain('protected')
    expect(restoreRefusal(branch('dev', 'main', { current_state: 'init' }))).toContain('init')
    expect(restoreRefusal(main)).toBeNull()
  })

  it('keeps the replaced state where somebody needs it, as the API does', () => {
    expect(mustPreserve(dev, dev, all)).toContain('past')
    expect(mustPreserve(dev, main, all)).toContain('test')
    expect(mustPreserve(test, main, all)).toBeNull()
  })

  it('says what stops, what goes and what becomes of its branches', () => {
    const kept = restoreSteps({
      branch: dev,
      source: dev,
      branches: all,
      endpoints: [endpoint('ep-1', 'dev'), endpoint('ep-2', 'main')],
      preserveUnder: 'dev-before',
    }).join('\n')
    expect(kept).toContain('ep-1 stops')
    expect(kept).not.toContain('ep-2')
    expect(kept).toContain('stays as branch “dev-before”')
    expect(kept).toContain('test becomes a branch of it')
    const gone = restoreSteps({
      branch: test,
      source: main,
      branches: all,
      endpoints: [endpoint('ep-3', 'test', 'idle')],
      preserveUnder: null,
    }).join('\n')
    expect(gone).toContain('deleted for good')
    expect(gone).not.toContain('stops')
    expect(gone).toContain('Roles and databases are those of main')
  })

  it('names what is replaced as nothing else is named', () => {
    const at = new Date('2026-01-02T03:04:05Z')
    expect(preservedName(dev, all, at)).toBe('dev-before-20260102-0304')
    expect(preservedName(dev, [...all, branch('dev-before-20260102-0304', null)], at)).toBe(
      'dev-before-20260102-0304-2',
    )
  })
})

describe('a quota', () => {
  it('is near at four fifths and reached at all of it; without one there is nothing to show', () => {
    expect([quotaUse(79, 100)?.state, quotaUse(80, 100)?.state, quotaUse(100, 100)?.state]).toEqual([
      'under',
      'near',
      'reached',
    ])
    expect([quotaUse(5, 0), quotaUse(null, 100)]).toEqual([null, null])
  })
})
