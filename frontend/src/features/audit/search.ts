import type { AuditFilter } from './queries'

const text = (value: unknown): string | undefined => {
  const trimmed = typeof value === 'string' ? value.trim() : ''
  return trimmed === '' ? undefined : trimmed
}

/** The page's address as a filter; what makes no sense is left out. */
export function parseAudit(search: Record<string, unknown>): AuditFilter {
  const project = text(search.project)
  const resource = text(search.resource)
  return { ...(project ? { project } : {}), ...(resource ? { resource } : {}) }
}
