import { expect, it } from 'vitest'

import { sideBySide, totals } from './diff'
import { parseSchemaDiff } from './search'

const DIFF = `--- a/appdb
+++ b/appdb
@@ -10,4 +10,5 @@
 CREATE TABLE public.orders (
-    id integer,
-    note text
+    id bigint,
+    note text,
+    at timestamptz
 );
@@ -40 +41,0 @@
---- a comment of the schema
`

it('puts lines that changed beside each other, with their numbers', () => {
  const rows = sideBySide(DIFF)
  expect(rows.map((row) => row.kind)).toEqual([
    'gap',
    'same',
    'changed',
    'changed',
    'changed',
    'same',
    'gap',
    'changed',
  ])
  expect(rows[2]).toEqual({
    kind: 'changed',
    left: { number: 11, text: '    id integer,' },
    right: { number: 11, text: '    id bigint,' },
  })
  expect(rows[4]).toEqual({ kind: 'changed', left: null, right: { number: 13, text: '    at timestamptz' } })
  expect(rows[5]).toMatchObject({ left: { number: 13 }, right: { number: 14 } })
  // A comment of SQL that goes looks like the head of a diff.
  expect(rows[7]).toEqual({ kind: 'changed', left: { number: 40, text: '--- a comment of the schema' }, right: null })
  expect(totals(rows)).toEqual({ removed: 3, added: 3 })
})

it('makes nothing of no difference', () => {
  expect(sideBySide('')).toEqual([])
  expect(totals([])).toEqual({ removed: 0, added: 0 })
})

it('keeps changes apart that follow each other', () => {
  const rows = sideBySide('@@ -1,2 +1,2 @@\n-a\n+b\n-c\n+d\n')
  expect(rows.slice(1)).toEqual([
    { kind: 'changed', left: { number: 1, text: 'a' }, right: { number: 1, text: 'b' } },
    { kind: 'changed', left: { number: 2, text: 'c' }, right: { number: 2, text: 'd' } },
  ])
})

it('reads what an address says, and no more', () => {
  expect(parseSchemaDiff({ base: 'br-1', branch: '', db: 5, other: 'x' })).toEqual({ base: 'br-1' })
})
