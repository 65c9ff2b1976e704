import type { ComputesFilter } from './queries'

/** The filter that an address says. */
export function parseComputes(search: Record<string, unknown>): ComputesFilter {
  return {
    ...(typeof search.q === 'string' && search.q !== '' ? { q: search.q } : {}),
    ...(search.wanted === 'active' || search.wanted === 'idle' ? { wanted: search.wanted } : {}),
    ...(typeof search.pushdown === 'boolean' ? { pushdown: search.pushdown } : {}),
  }
}
