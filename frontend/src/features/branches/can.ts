import type { Branch, Endpoint, Project } from '~/api/types'
import { bytes } from '~/lib/format'

const names = (branches: Branch[]) => branches.map((branch) => branch.name).join(', ')

/** Why a branch cannot be restored now. */
export function restoreRefusal(branch: Branch): string | null {
  if (branch.current_state !== 'ready')
    return `The branch is ${branch.current_state}; only a ready one can be restored.`
  if (branch.protected) return 'The branch is protected. End its protection first.'
  return null
}

/** Why a branch that has a parent cannot be made independent of it now. */
export function detachRefusal(branch: Branch): string | null {
  return branch.current_state === 'ready'
    ? null
    : `The branch is ${branch.current_state}; only a ready one can be detached.`
}

/** Why a branch cannot be deleted now, with those below it. */
export function deleteRefusal(branch: Branch, below: Branch[]): string | null {
  if (branch.default) return 'The default branch goes with its project.'
  if (branch.protected) return 'The branch is protected. End its protection first.'
  // A restore may have put the default branch below the one that holds what was before.
  const first = below.find((each) => each.default)
  if (first) return `${first.name}, the default branch, is made from it and needs its data. Detach that first.`
  const kept = below.filter((each) => each.protected)
  return kept.length > 0
    ? `Protected branches are made from it: ${names(kept)}. Detach them first, or end their protection.`
    : null
}

/** Why what a branch holds now has to stay under another name when it is restored; null when it may go. */
export function mustPreserve(branch: Branch, source: Branch, branches: Branch[]): string | null {
  if (source.id === branch.id) return 'Its past is part of what it is now, which stays as a branch of its own.'
  const children = branches.filter((each) => each.parent_id === branch.id)
  return children.length > 0
    ? `${names(children)} ${children.length === 1 ? 'needs' : 'need'} what it is now, which stays as a branch of its own.`
    : null
}

type Restore = {
  branch: Branch
  source: Branch
  branches: Branch[]
  endpoints: Endpoint[]
  preserveUnder: string | null
}

/** What a restore does, step by step, before it is begun. */
export function restoreSteps({ branch, source, branches, endpoints, preserveUnder }: Restore): string[] {
  const running = endpoints.filter(
    (endpoint) => endpoint.branch_id === branch.id && endpoint.current_state === 'active',
  )
  const children = branches.filter((each) => each.parent_id === branch.id)
  const follow =
    children.length > 0
      ? ` ${names(children)} ${children.length === 1 ? 'becomes a branch' : 'become branches'} of it.`
      : ''
  return [
    `The state asked for is made as a branch, without copying. Until that is done ${branch.name} works as before.`,
    ...(running.length > 0
      ? [
          `${running.map((endpoint) => endpoint.id).join(', ')} stops: its connections end, and what is not committed is lost.`,
        ]
      : []),
    `Branch ${branch.name} gets that state. ` +
      (source.id === branch.id
        ? 'Its id, its addresses and its passwords stay.'
        : `Its id and its addresses stay. Roles and databases are those of ${source.name} today; ` +
          `a role that ${branch.name} has too keeps its password.`),
    ...(running.length > 0 ? ['The compute starts again at the same address.'] : []),
    preserveUnder === null
      ? `What ${branch.name} is now is deleted for good.`
      : `What ${branch.name} is now stays as branch “${preserveUnder || '…'}”, without a compute.${follow}`,
  ]
}

/** A name for what a restore replaces, that no branch has yet. */
export function preservedName(branch: Branch, branches: Branch[], now: Date): string {
  const day = now.toISOString().slice(0, 16).replace(/[-:]/g, '').replace('T', '-')
  const wanted = `${branch.name}-before-${day}`
  const taken = new Set(branches.map((each) => each.name))
  let name = wanted
  for (let number = 2; taken.has(name); number += 1) name = `${wanted}-${String(number)}`
  return name
}

/** What goes with a branch, one line each: the branch itself first. */
export function leaving(branch: Branch, below: Branch[], endpoints: Endpoint[]): { id: string; text: string }[] {
  return [branch, ...below].map((each) => {
    const computes = endpoints.filter((endpoint) => endpoint.branch_id === each.id).map((endpoint) => endpoint.id)
    const held = each.logical_size == null ? '' : `, ${bytes(each.logical_size)} of data`
    return {
      id: each.id,
      text: `${each.name}${held}${computes.length > 0 ? `, with compute ${computes.join(', ')}` : ''}`,
    }
  })
}

/** Bytes of data that each branch of a project may hold; 0 is no limit. */
export const quotaOf = (project: Project): number => project.branch_logical_size_limit_bytes ?? 0

/** How much of its quota a branch has used: the share, and whether it is near or over; null without a quota. */
export function quotaUse(
  used: number | null | undefined,
  limit: number,
): { share: number; state: 'under' | 'near' | 'reached' } | null {
  if (limit <= 0 || used == null) return null
  const share = used / limit
  return { share, state: share >= 1 ? 'reached' : share >= 0.8 ? 'near' : 'under' }
}
