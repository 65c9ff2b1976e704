import type { CoverageFilter } from './queries'

/** The filter that an address says. */
export function parseCoverage(search: Record<string, unknown>): CoverageFilter {
  const text = (value: unknown) => (typeof value === 'string' && value !== '' ? value : undefined)
  const [region, cell, q] = [text(search.region), text(search.cell), text(search.q)]
  return {
    ...(search.feature === 'postgres_minor' ? { feature: search.feature } : {}),
    ...(typeof search.has === 'boolean' ? { has: search.has } : {}),
    ...(region ? { region } : {}),
    ...(cell ? { cell } : {}),
    ...(q ? { q } : {}),
  }
}
