import { expect, it } from 'vitest'

import type { Branch } from '~/api/types'

import { branchForest, type BranchOrder, flatten } from './branch-tree'

const branch = (id: string, parent: string | null, created: string) =>
  ({ id, parent_id: parent, created_at: created }) as unknown as Branch

it('orders siblings as asked, and keeps each below its parent', () => {
  const named = (id: string, name: string, parent: string | null, size: number | null) => ({
    ...branch(id, parent, id),
    name,
    logical_size: size,
  })
  const branches = [
    named('1', 'main', null, 5),
    named('2', 'b10', '1', 3),
    named('3', 'b9', '1', null),
    named('4', 'a', '2', 9),
    named('5', 'c', '1', 4),
  ]
  const order = (by: BranchOrder) => flatten(branchForest(branches, by)).map((row) => row.branch.name)
  expect(order('created')).toEqual(['main', 'b10', 'a', 'b9', 'c'])
  expect(order('name')).toEqual(['main', 'b9', 'b10', 'a', 'c'])
  expect(order('size')).toEqual(['main', 'c', 'b10', 'a', 'b9'])
})

it('orders parents before children and keeps a branch whose parent is not listed', () => {
  const rows = flatten(
    branchForest([
      branch('child', 'main', '2026-01-02'),
      branch('grandchild', 'child', '2026-01-03'),
      branch('main', null, '2026-01-01'),
      branch('orphan', 'gone', '2026-01-04'),
    ]),
  )
  expect(rows.map((row) => [row.branch.id, row.depth])).toEqual([
    ['main', 0],
    ['child', 1],
    ['grandchild', 2],
    ['orphan', 0],
  ])
})
