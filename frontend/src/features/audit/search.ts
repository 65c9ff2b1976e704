import type { AuditFilter } from './queries'

const FIELDS = ['project', 'resource', 'actor', 'action'] as const
const MOMENTS = ['since', 'until'] as const

const text = (value: unknown): string | undefined => {
  const trimmed = typeof value === 'string' ? value.trim() : ''
  return trimmed === '' ? undefined : trimmed
}

/** A moment in ISO 8601, in UTC; a form's field may have one without a time zone, which is the reader's. */
const moment = (value: unknown): string | undefined => {
  const at = new Date(text(value) ?? NaN)
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString()
}

/** The page's address as a filter; what makes no sense is left out. */
export function parseAudit(search: Record<string, unknown>): AuditFilter {
  const found = [
    ...FIELDS.map((name) => [name, text(search[name])] as const),
    ...MOMENTS.map((name) => [name, moment(search[name])] as const),
  ].filter(([, value]) => value !== undefined)
  return Object.fromEntries(found) as AuditFilter
}

/** The kinds that actions of the log are of: what stands before the dot. */
export const KINDS = [
  'account',
  'api_key',
  'branch',
  'database',
  'endpoint',
  'member',
  'operation',
  'project',
  'quota',
  'role',
  'rollout',
  'safekeeper',
  'session',
  'snapshot',
  'user',
] as const

/** The kind of an action, or of all that begin alike; empty for none that is known. */
export function kindOf(action: string | undefined): string {
  return KINDS.find((kind) => action?.startsWith(`${kind}.`)) ?? ''
}
