import type { RolloutGrid } from '~/api/types'

/** One compute of a rollout as the running view needs it. */
export type GridMember = {
  id: string
  project: string
  region: string
  cell: string
  wave: number
  state: string
  reason: string | null
}

export type GridData = {
  /** When the server looked; the next question asks for what changed since. */
  at: string
  cells: RolloutGrid['cells']
  members: GridMember[]
}

function rows(grid: RolloutGrid): GridMember[] {
  const { computes } = grid
  return computes.compute_id.map((id, index) => {
    const cell = grid.cells[computes.cell[index] ?? -1]
    return {
      id,
      project: computes.project_name[index] ?? '',
      region: cell?.region_id ?? '',
      cell: cell?.cell ?? '',
      wave: computes.wave[index] ?? 0,
      state: grid.states[computes.state[index] ?? -1] ?? 'pending',
      reason: grid.reasons[computes.reason[index] ?? -1] ?? null,
    }
  })
}

/** Columns to rows; with what was known before, only the rows that changed are replaced. */
export function mergeGrid(known: GridData | undefined, grid: RolloutGrid): GridData {
  const fresh = rows(grid)
  if (!known) return { at: grid.at, cells: grid.cells, members: fresh }
  if (fresh.length === 0) return { at: grid.at, cells: grid.cells, members: known.members }
  const changed = new Map(fresh.map((member) => [member.id, member]))
  const members = known.members.map((member) => {
    const now = changed.get(member.id)
    changed.delete(member.id)
    return now ?? member
  })
  return { at: grid.at, cells: grid.cells, members: [...members, ...changed.values()] }
}
