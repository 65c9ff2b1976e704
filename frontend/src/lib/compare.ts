/** What rows can be sorted by; null and undefined stand for a value that is not known. */
export type SortValue = string | number | boolean | null | undefined

const TEXTS = new Intl.Collator(undefined, { numeric: true, sensitivity: 'base' })

/** Negative where `a` comes first. Numbers by size, false before true, texts as people order them: `node 9` before `Node 10`. */
export function compare(a: SortValue, b: SortValue): number {
  if (typeof a === 'number' && typeof b === 'number') return a - b
  if (typeof a === 'boolean' && typeof b === 'boolean') return Number(a) - Number(b)
  return TEXTS.compare(String(a), String(b))
}
