import type { Branch } from '~/api/types'
import { compare } from '~/lib/compare'

export type BranchNode = { branch: Branch; depth: number; children: BranchNode[] }

/** Orders in which siblings can be shown. */
export type BranchOrder = 'created' | 'name' | 'size'

const COMPARE: Record<BranchOrder, (a: Branch, b: Branch) => number> = {
  created: (a, b) => a.created_at.localeCompare(b.created_at),
  name: (a, b) => compare(a.name, b.name),
  size: (a, b) => (b.logical_size ?? -1) - (a.logical_size ?? -1),
}

/** Branches as a forest, parents before children, siblings as asked; an unknown parent makes a root. */
export function branchForest(branches: Branch[], order: BranchOrder = 'created'): BranchNode[] {
  const nodes = new Map(branches.map((branch) => [branch.id, { branch, depth: 0, children: [] as BranchNode[] }]))
  const roots: BranchNode[] = []
  for (const node of [...nodes.values()].sort((a, b) => COMPARE[order](a.branch, b.branch))) {
    const parent = node.branch.parent_id ? nodes.get(node.branch.parent_id) : undefined
    if (parent) parent.children.push(node)
    else roots.push(node)
  }
  const setDepth = (node: BranchNode, depth: number) => {
    node.depth = depth
    for (const child of node.children) setDepth(child, depth + 1)
  }
  for (const node of roots) setDepth(node, 0)
  return roots
}

/** The forest in reading order. */
export function flatten(forest: BranchNode[]): BranchNode[] {
  return forest.flatMap((node) => [node, ...flatten(node.children)])
}

/** Its branches, theirs and so on, in reading order. */
export function branchesBelow(branches: Branch[], branchId: string): Branch[] {
  const all = flatten(branchForest(branches))
  const found = all.find((node) => node.branch.id === branchId)
  return found ? flatten(found.children).map((node) => node.branch) : []
}
