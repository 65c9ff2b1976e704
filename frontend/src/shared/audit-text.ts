import { stateText } from './states'

/** What an entry of the audit log says beyond who and what: whom it reached, what came of it, why. */
export function detailText(detail: Record<string, unknown>): string {
  const parts = Object.entries(detail).flatMap(([name, value]) =>
    value == null || value === ''
      ? []
      : [`${stateText(name)}: ${typeof value === 'string' ? value : JSON.stringify(value)}`],
  )
  return parts.join('; ') || '—'
}
