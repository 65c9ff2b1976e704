import { clsx } from 'clsx'
import { ChevronDown, ChevronsUpDown, ChevronUp } from 'lucide-react'
import type { ReactNode } from 'react'

import type { SortValue } from '~/lib/compare'

export type Column<Row> = {
  key: string
  header: ReactNode
  cell: (row: Row) => ReactNode
  /** Numbers align right so that digits line up, and sort the largest first. */
  numeric?: boolean
  /** What a person sorts by in this column; without it the column cannot be sorted by. Rows without a value come last. */
  sort?: (row: Row) => SortValue
}

/** A column as it is sorted now, and how it is sorted otherwise; `toggle` is undefined where it cannot be. */
export type SortedColumn<Row> = {
  column: Column<Row>
  direction: 'ascending' | 'descending' | null
  toggle: (() => void) | undefined
}

const ICONS = { ascending: ChevronUp, descending: ChevronDown, none: ChevronsUpDown }

export function TableHead<Row>({
  caption,
  head,
  sticky,
}: {
  caption: string
  head: SortedColumn<Row>[]
  sticky?: boolean
}) {
  return (
    <>
      <caption className="sr-only">{caption}</caption>
      <thead className={clsx(sticky && 'sticky top-0 z-10 bg-panel')}>
        <tr className="border-b border-line text-left text-xs text-muted">
          {head.map(({ column, direction, toggle }) => {
            const Icon = ICONS[direction ?? 'none']
            return (
              <th
                key={column.key}
                scope="col"
                aria-sort={direction ?? undefined}
                className={clsx('px-2 py-1.5 font-medium whitespace-nowrap', column.numeric && 'text-right')}
              >
                {toggle ? (
                  <button
                    type="button"
                    title="Sort by this column"
                    className={clsx(
                      '-mx-1 inline-flex items-center gap-0.5 rounded-sm px-1 hover:text-text',
                      direction && 'text-text',
                    )}
                    onClick={toggle}
                  >
                    {column.header}
                    <Icon aria-hidden size={12} className={clsx('flex-none', !direction && 'opacity-50')} />
                  </button>
                ) : (
                  column.header
                )}
              </th>
            )
          })}
        </tr>
      </thead>
    </>
  )
}
