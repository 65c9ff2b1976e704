import { clsx } from 'clsx'

import { count } from '~/lib/format'
import { Notice } from '~/ui/Notice'
import { Table } from '~/ui/Table'

import { type DiffRow, type Line, sideBySide, totals } from './diff'

type Side = { line: Line | null; changed: boolean; sign: '−' | '+'; what: string }

function Cell({ line, changed, sign, what }: Side) {
  if (line === null) return null
  return (
    <span className={clsx('flex gap-2 rounded px-1', changed && (sign === '+' ? 'bg-good-soft' : 'bg-bad-soft'))}>
      <span aria-hidden className="tabular w-10 shrink-0 text-right text-xs text-muted select-none">
        {line.number}
      </span>
      <span aria-hidden className="w-3 shrink-0 select-none">
        {changed && sign}
      </span>
      {changed && <span className="sr-only">{what} </span>}
      <code className="text-xs whitespace-pre-wrap break-all">{line.text}</code>
    </span>
  )
}

function cell(row: DiffRow, side: 'left' | 'right') {
  if (row.kind === 'gap') return side === 'left' ? <span className="text-xs text-muted">… {row.at}</span> : null
  const changed = row.kind === 'changed'
  return side === 'left' ? (
    <Cell line={row.left} changed={changed} sign="−" what="Goes:" />
  ) : (
    <Cell line={row.right} changed={changed} sign="+" what="Comes:" />
  )
}

type Props = { diff: string; base: string; branch: string }

/** Two schemas side by side where they differ: the base's lines to the left, the branch's to the right. */
export function SchemaDiff({ diff, base, branch }: Props) {
  const rows = sideBySide(diff)
  if (rows.length === 0)
    return (
      <Notice>
        The schemas of {base} and {branch} are the same.
      </Notice>
    )
  const { removed, added } = totals(rows)
  const numbered = rows.map((row, index) => ({ row, index }))
  return (
    <>
      <p role="status" className="mb-3 text-sm text-muted">
        From {base} to {branch}: {count(removed)} {removed === 1 ? 'line goes' : 'lines go'}, {count(added)}{' '}
        {added === 1 ? 'comes' : 'come'}.
      </p>
      <Table
        caption={`Schema of ${base} beside that of ${branch}`}
        rows={numbered}
        rowKey={({ index }) => String(index)}
        empty=""
        columns={[
          { key: 'left', header: base, cell: ({ row }) => cell(row, 'left') },
          { key: 'right', header: branch, cell: ({ row }) => cell(row, 'right') },
        ]}
      />
    </>
  )
}
