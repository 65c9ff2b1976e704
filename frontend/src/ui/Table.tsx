import { useVirtualizer } from '@tanstack/react-virtual'
import { clsx } from 'clsx'
import { type ReactNode, useRef } from 'react'

export type Column<Row> = {
  key: string
  header: ReactNode
  cell: (row: Row) => ReactNode
  /** Numbers align right so that digits line up. */
  numeric?: boolean
}

type Props<Row> = {
  caption: string
  columns: Column<Row>[]
  rows: Row[]
  rowKey: (row: Row) => string
  empty: ReactNode
  /** On narrow screens each row becomes a card of named values, instead of a table that scrolls sideways. */
  cards?: boolean
}

/** Above this, only the rows in sight are in the document, and the table scrolls by itself. */
const VIRTUAL_ABOVE = 200
const ROW_PX = 41

/** A real table: caption for screen readers, scrolls sideways on narrow screens instead of squeezing. */
export function Table<Row>(props: Props<Row>) {
  const { caption, rows, empty } = props
  if (rows.length === 0) return <div className="py-6 text-center text-muted">{empty}</div>
  if (rows.length > VIRTUAL_ABOVE) return <VirtualTable {...props} />
  return (
    // A region that scrolls must be reachable by keyboard.
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <div role="region" aria-label={caption} tabIndex={0} className="overflow-x-auto">
      <table className={clsx('w-full text-sm', props.cards && 'cards')}>
        <Head {...props} />
        <tbody>
          {rows.map((row, index) => (
            <Row key={props.rowKey(row)} row={row} index={index} {...props} />
          ))}
        </tbody>
      </table>
    </div>
  )
}

function VirtualTable<Row>(props: Props<Row>) {
  const { caption, rows, rowKey } = props
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
    <div ref={box} role="region" aria-label={caption} tabIndex={0} className="max-h-[70dvh] overflow-auto [overflow-anchor:none]">
      <table aria-rowcount={rows.length + 1} className={clsx('w-full text-sm', props.cards && 'cards')}>
        <Head {...props} sticky />
        <tbody>
          <Spacer height={above} />
          {items.map(({ index }) => {
            const row = rows[index]
            return row === undefined ? null : <Row key={rowKey(row)} row={row} index={index} measure={virtualizer.measureElement} {...props} />
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

function Head<Row>({ caption, columns, sticky }: Props<Row> & { sticky?: boolean }) {
  return (
    <>
      <caption className="sr-only">{caption}</caption>
      <thead className={clsx(sticky && 'sticky top-0 z-10 bg-panel')}>
        <tr className="border-b border-line text-left text-xs text-muted">
          {columns.map((column) => (
            <th key={column.key} scope="col" className={clsx('px-2 py-1.5 font-medium whitespace-nowrap', column.numeric && 'text-right')}>
              {column.header}
            </th>
          ))}
        </tr>
      </thead>
    </>
  )
}

type RowProps<Row> = Props<Row> & { row: Row; index: number; measure?: (element: HTMLTableRowElement | null) => void }

function Row<Row>({ columns, row, index, measure }: RowProps<Row>) {
  return (
    <tr ref={measure} data-index={index} aria-rowindex={measure ? index + 2 : undefined} className="border-b border-line last:border-0">
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
