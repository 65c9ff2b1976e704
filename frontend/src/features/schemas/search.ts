/** Which two branches' schemas are compared, of which database; what is absent is not chosen yet. */
export type SchemaSearch = { base?: string; branch?: string; db?: string }

/** What an address says. */
export function parseSchemaDiff(search: Record<string, unknown>): SchemaSearch {
  const text = (value: unknown) => (typeof value === 'string' && value !== '' ? value : undefined)
  const [base, branch, db] = [text(search.base), text(search.branch), text(search.db)]
  return { ...(base ? { base } : {}), ...(branch ? { branch } : {}), ...(db ? { db } : {}) }
}
