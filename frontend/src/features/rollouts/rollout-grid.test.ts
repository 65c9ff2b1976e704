import { describe, expect, it } from 'vitest'

import type { RolloutGrid } from '~/api/types'

import { mergeGrid } from './grid-data'
import { filterMembers, groupByCell, whyHeld } from './rollout-grid'

function grid(
  rows: [id: string, cell: number, wave: number, state: number][],
  reasons: Record<string, string> = {},
): RolloutGrid {
  return {
    at: '2026-01-01T00:00:00Z',
    cells: [
      { region_id: 'eu', cell: 'eu-1', computes_total: 2, counts: {} },
      { region_id: 'us', cell: 'us-1', computes_total: 1, counts: {} },
    ],
    states: ['pending', 'baking', 'inconclusive'],
    computes: {
      compute_id: rows.map((row) => row[0]),
      project_name: rows.map((row) => `project of ${row[0]}`),
      cell: rows.map((row) => row[1]),
      wave: rows.map((row) => row[2]),
      state: rows.map((row) => row[3]),
      reason: rows.map((row) => (row[0] in reasons ? Object.keys(reasons).indexOf(row[0]) : null)),
    },
    reasons: Object.values(reasons),
  } as unknown as RolloutGrid
}

const first = mergeGrid(
  undefined,
  grid(
    [
      ['a', 0, 0, 1],
      ['b', 1, 1, 0],
      ['c', 0, 1, 2],
    ],
    { c: 'only 213 transactions' },
  ),
)

describe('the grid of a rollout', () => {
  it('makes rows of columns, each with its cell, state and reason', () => {
    expect(first.members[2]).toEqual({
      id: 'c',
      project: 'project of c',
      region: 'eu',
      cell: 'eu-1',
      wave: 1,
      state: 'inconclusive',
      reason: 'only 213 transactions',
    })
  })

  it('replaces only what changed, keeps the order, and adds what is new', () => {
    const next = mergeGrid(
      first,
      grid([
        ['b', 1, 1, 1],
        ['d', 1, 1, 0],
      ]),
    )
    expect(next.members.map((member) => [member.id, member.state])).toEqual([
      ['a', 'baking'],
      ['b', 'baking'],
      ['c', 'inconclusive'],
      ['d', 'pending'],
    ])
    expect(next.members[0]).toBe(first.members[0])
  })

  it('keeps its rows as they are when nothing changed, so that nothing is drawn again', () => {
    expect(mergeGrid(first, grid([])).members).toBe(first.members)
  })

  it('filters by state, wave, cell and text, the text also in reasons', () => {
    const ids = (filter: Parameters<typeof filterMembers>[1]) =>
      filterMembers(first.members, filter).map((member) => member.id)
    expect(ids({})).toEqual(['a', 'b', 'c'])
    expect(ids({ states: ['pending', 'inconclusive'] })).toEqual(['b', 'c'])
    expect(ids({ wave: 1, cell: 'eu-1' })).toEqual(['c'])
    expect(ids({ q: ' 213 ' })).toEqual(['c'])
    expect(ids({ q: 'project of B' })).toEqual(['b'])
  })

  it('groups by cell, in the order of waves', () => {
    expect(groupByCell(first.members).map((group) => [group.key, group.members.map((member) => member.id)])).toEqual([
      ['eu/eu-1', ['a', 'c']],
      ['us/us-1', ['b']],
    ])
  })

  it('counts one reason once however its numbers differ', () => {
    const members = mergeGrid(
      undefined,
      grid(
        [
          ['a', 0, 0, 2],
          ['b', 0, 0, 2],
          ['c', 0, 0, 2],
        ],
        { a: 'only 10 of 600 s', b: 'only 99.5 of 600 s', c: 'no controls' },
      ),
    ).members
    expect(whyHeld(members).map((held) => [held.members.length, held.reason])).toEqual([
      [2, 'only 10 of 600 s'],
      [1, 'no controls'],
    ])
  })
})
