import type { GridMember } from './grid-data'

/** What the running view shows; lives in the address so that a view can be sent to a colleague. */
export type GridFilter = { states?: string[]; wave?: number; cell?: string; q?: string }

export function filterMembers(members: GridMember[], { states, wave, cell, q }: GridFilter): GridMember[] {
  const needle = q?.trim().toLowerCase()
  return members.filter(
    (member) =>
      (!states?.length || states.includes(member.state)) &&
      (wave === undefined || member.wave === wave) &&
      (cell === undefined || member.cell === cell) &&
      (!needle ||
        member.id.toLowerCase().includes(needle) ||
        member.project.toLowerCase().includes(needle) ||
        (member.reason?.toLowerCase().includes(needle) ?? false)),
  )
}

export type GridGroup = { key: string; region: string; cell: string; members: GridMember[] }

/** By region and cell; within one by wave, then by name, so that a compute keeps its place while states change. */
export function groupByCell(members: GridMember[]): GridGroup[] {
  const groups = new Map<string, GridGroup>()
  for (const member of members) {
    const key = `${member.region}/${member.cell}`
    const group = groups.get(key) ?? { key, region: member.region, cell: member.cell, members: [] }
    group.members.push(member)
    groups.set(key, group)
  }
  const sorted = [...groups.values()].sort((a, b) => (a.key < b.key ? -1 : 1))
  for (const group of sorted) group.members.sort((a, b) => a.wave - b.wave || (a.id < b.id ? -1 : 1))
  return sorted
}

export type Held = { reason: string; members: GridMember[] }

const STOPPED = new Set(['inconclusive', 'regressed', 'failed', 'deferred', 'skipped', 'pending'])

/** Why computes stand still, most common reason first. Numbers in a reason do not make it another reason. */
export function whyHeld(members: GridMember[]): Held[] {
  const kinds = new Map<string, Held>()
  for (const member of members) {
    if (!member.reason || !STOPPED.has(member.state)) continue
    const kind = `${member.state}: ${member.reason.replace(/\d+([.,]\d+)?/g, '#')}`
    const held = kinds.get(kind) ?? { reason: member.reason, members: [] }
    held.members.push(member)
    kinds.set(kind, held)
  }
  return [...kinds.values()].sort((a, b) => b.members.length - a.members.length)
}
