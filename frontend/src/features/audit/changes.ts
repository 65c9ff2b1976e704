/** What an entry says of one thing: as it was, where that was noted, and as it was asked to be. */
export type Change = { name: string; before: unknown; after: unknown }
export type Said = { changes: Change[]; rest: [name: string, value: unknown][] }

const BEFORE = '_before'

/**
 * An entry's detail, with what was before beside what came after. `role_before` is what `role` was; a `before` alone is
 * what the entry's only other value was.
 */
export function saidOf(detail: Record<string, unknown>): Said {
  const said = Object.entries(detail).filter(([, value]) => value !== null && value !== undefined && value !== '')
  const others = said.filter(([name]) => name !== 'before' && !name.endsWith(BEFORE))
  const only = others.length === 1 ? others[0]?.[0] : undefined
  const changes: Change[] = []
  const rest: [string, unknown][] = []
  for (const [name, value] of said) {
    const of = name === 'before' ? only : name.endsWith(BEFORE) ? name.slice(0, -BEFORE.length) : undefined
    if (of !== undefined && of in detail) changes.push({ name: of, before: value, after: detail[of] })
    else if (of !== undefined && name !== 'before') changes.push({ name: of, before: value, after: undefined })
    else rest.push([name, value])
  }
  const paired = new Set(changes.map(({ name }) => name))
  return { changes, rest: rest.filter(([name]) => !paired.has(name)) }
}
