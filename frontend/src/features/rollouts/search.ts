import type { GridFilter } from './rollout-grid'

/** The filter that an address says, with everything odd left out. */
export function parseFilter(search: Record<string, unknown>): GridFilter {
  const states = Array.isArray(search.states)
    ? search.states.filter((state): state is string => typeof state === 'string')
    : []
  return {
    ...(states.length > 0 ? { states } : {}),
    ...(typeof search.wave === 'number' && Number.isInteger(search.wave) ? { wave: search.wave } : {}),
    ...(typeof search.cell === 'string' ? { cell: search.cell } : {}),
    ...(typeof search.q === 'string' && search.q !== '' ? { q: search.q } : {}),
  }
}

/** What the address of a rollout says: the filter, the view, and the compute that is open. */
export type RolloutSearch = GridFilter & { view?: 'list'; compute?: string }

export function parseRolloutSearch(search: Record<string, unknown>): RolloutSearch {
  return {
    ...parseFilter(search),
    ...(search.view === 'list' ? { view: 'list' as const } : {}),
    ...(typeof search.compute === 'string' ? { compute: search.compute } : {}),
  }
}
