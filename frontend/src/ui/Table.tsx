import { useVirtualizer } from '@tanstack/react-virtual'
import { clsx } from 'clsx'
import { type ReactNode, useRef } from 'react'

import { count } from '~/lib/format'

import { type Column, type SortedColumn, TableHead } from './TableHead'
import { useSorted } from './use-sorted'

export type { Column }

type Props<Row> = {
  caption: string
  columns: Column<Row>[]
  rows: Row[]
  rowKey: (row: Row) => string
  empty: ReactNode
  /** On narrow screens each row becomes a card of named values, instead of a table that scrolls sideways. */
  cards?: boolean
  /** There are more rows than these; sorting puts in order only what is here, and says so. */
  partial?: boolean
}

type Drawn<Row> = Props<Row> & { head: SortedColumn<Row>[] }

/** Above this, only the rows in sight are in the document, and the table scrolls by itself. */
const VIRTUAL_ABOVE = 200
const ROW_PX = 41
const SCROLLS = 'max-h-[70dvh] overflow-auto [overflow-anchor:none]'

/**
 * A real table: caption for screen readers, scrolls sideways on narrow screens instead of squeezing. Columns that say
 * what they sort by have a button in their head: once sorts, again turns, a third time goes back to the order of `rows`.
 */
export function Table<Row>(props: Props<Row>) {
  const { rows, head, isSorted } = useSorted(props.rows, props.columns)
  if (rows.length === 0) return <div className="py-6 text-center text-muted">{props.empty}</div>
  const drawn = { ...props, rows, head }
  return (
    <>
      {rows.length > VIRTUAL_ABOVE ? <VirtualTable {...drawn} /> : <WholeTable {...drawn} />}
      {props.partial && isSorted && (
        <p role="status" className="mt-2 text-center text-xs text-muted">
          Sorted among the {count(rows.length)} shown; there are more.
        </p>
      )}
    </>
  )
}

function WholeTable<Row>(props: Drawn<Row>) {
  const { caption, rows, head } = props
  return (
    // A region that scrolls must be reachable by keyboard.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div role="region" aria-label={caption} tabIndex={0} className="overflow-x-auto">
      <table className={clsx('w-full text-sm', props.cards && 'cards')}>
        <TableHead caption={caption} head={head} />
        <tbody>
          {rows.map((row, index) => (
            <Row key={props.rowKey(row)} row={row} index={index} {...props} />
          ))}
        </tbody>
      </table>
    </div>
  )
}

function VirtualTable<Row>(props: Drawn<Row>) {
  const { caption, rows, head, rowKey } = props
  const box = useRef<HTMLDivElement>(null)
  // Nothing here is compiled or memoised, so functions that must not be memoised do no harm.
  // eslint-disable-next-line react-hooks/incompatible-library
  const virtualizer = useVirtualizer({
    count: rows.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
    initialRect: { width: 1000, height: 600 },
  })
  const items = virtualizer.getVirtualItems()
  const above = items[0]?.start ?? 0
  const below = virtualizer.getTotalSize() - (items.at(-1)?.end ?? 0)
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div ref={box} role="region" aria-label={caption} tabIndex={0} className={SCROLLS}>
      <table aria-rowcount={rows.length + 1} className={clsx('w-full text-sm', props.cards && 'cards')}>
        <TableHead caption={caption} head={head} sticky />
        <tbody>
          <Spacer height={above} />
          {items.map(({ index }) => {
            const row = rows[index]
            return row === undefined ? null : (
              <Row key={rowKey(row)} row={row} index={index} measure={virtualizer.measureElement} {...props} />
            )
          })}
          <Spacer height={below} />
        </tbody>
      </table>
    </div>
  )
}

/** Stands for the rows that are out of sight. */
function Spacer({ height }: { height: number }) {
  return height > 0 ? (
    <tr aria-hidden>
      <td style={{ height, padding: 0 }} />
    </tr>
  ) : null
}

type RowProps<Row> = Props<Row> & { row: Row; index: number; measure?: (element: HTMLTableRowElement | null) => void }

function Row<Row>({ columns, row, index, measure }: RowProps<Row>) {
  return (
    <tr
      ref={measure}
      data-index={index}
      aria-rowindex={measure ? index + 2 : undefined}
      className="border-b border-line last:border-0"
    >
      {columns.map((column) => (
        <td
          key={column.key}
          data-label={typeof column.header === 'string' ? column.header : undefined}
          className={clsx('px-2 py-2 align-middle', column.numeric && 'tabular text-right whitespace-nowrap')}
        >
          {column.cell(row)}
        </td>
      ))}
    </tr>
  )
}
