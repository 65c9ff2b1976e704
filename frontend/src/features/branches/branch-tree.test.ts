import { expect, it } from 'vitest'

import type { Branch } from '~/api/types'

import { branchForest, flatten } from './branch-tree'

const branch = (id: string, parent: string | null, created: string) => ({ id, parent_id: parent, created_at: created }) as unknown as Branch

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
