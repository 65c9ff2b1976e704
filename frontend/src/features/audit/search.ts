import type { AuditFilter } from './queries'

const FIELDS = ['project', 'resource', 'actor', 'action'] as const

const text = (value: unknown): string | undefined => {
  const trimmed = typeof value === 'string' ? value.trim() : ''
  return trimmed === '' ? undefined : trimmed
}

/** The page's address as a filter; what makes no sense is left out. */
export function parseAudit(search: Record<string, unknown>): AuditFilter {
  const found = FIELDS.flatMap((name) => {
    const value = text(search[name])
    return value === undefined ? [] : [[name, value] as const]
  })
  return Object.fromEntries(found)
}
