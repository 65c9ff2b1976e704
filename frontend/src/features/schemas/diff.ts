/** A line of one side, with its number there. */
export type Line = { number: number; text: string }

/** What stands side by side: a line that both have, one that changed, or one that a side has alone; or a gap. */
export type DiffRow =
  { kind: 'gap'; at: string } | { kind: 'same' | 'changed'; left: Line | null; right: Line | null }

const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/

/** A unified diff, as the API gives it, as rows of two columns. Lines that went and lines that came in one place are put
 * beside each other in their order. */
export function sideBySide(diff: string): DiffRow[] {
  const rows: DiffRow[] = []
  let went: Line[] = []
  let came: Line[] = []
  let [left, right] = [0, 0]
  let inHunk = false
  const flush = () => {
    for (let index = 0; index < Math.max(went.length, came.length); index += 1)
      rows.push({ kind: 'changed', left: went[index] ?? null, right: came[index] ?? null })
    went = []
    came = []
  }
  for (const line of diff.split('\n')) {
    const hunk = HUNK.exec(line)
    if (hunk) {
      flush()
      ;[left, right] = [Number(hunk[1]), Number(hunk[2])]
      inHunk = true
      rows.push({ kind: 'gap', at: `line ${String(left)}, and line ${String(right)} of the branch` })
    } else if (inHunk && line.startsWith('-')) {
      // A line that goes after one that came begins another change.
      if (came.length > 0) flush()
      went.push({ number: left, text: line.slice(1) })
      left += 1
    } else if (inHunk && line.startsWith('+')) {
      came.push({ number: right, text: line.slice(1) })
      right += 1
    } else if (inHunk && line.startsWith(' ')) {
      flush()
      rows.push({
        kind: 'same',
        left: { number: left, text: line.slice(1) },
        right: { number: right, text: line.slice(1) },
      })
      left += 1
      right += 1
    }
  }
  flush()
  return rows
}

/** How many lines go, and how many come. */
export function totals(rows: DiffRow[]): { removed: number; added: number } {
  let [removed, added] = [0, 0]
  for (const row of rows) {
    if (row.kind !== 'changed') continue
    if (row.left) removed += 1
    if (row.right) added += 1
  }
  return { removed, added }
}
