import { createSortedRowModel, rowSortingFeature, tableFeatures, useTable } from '@tanstack/react-table'

import { compare, type SortValue } from '~/lib/compare'

import type { Column, SortedColumn } from './TableHead'

const features = tableFeatures({ rowSortingFeature, sortedRowModel: createSortedRowModel() })

/** Rows in the order that a person has chosen, which is that of `rows` at first, and columns that change the choice. */
export function useSorted<Row>(
  rows: Row[],
  columns: Column<Row>[],
): { rows: Row[]; head: SortedColumn<Row>[]; isSorted: boolean } {
  const table = useTable<typeof features, Row & object>({
    features,
    data: rows as (Row & object)[],
    columns: columns.map(({ key, sort, numeric }) => ({
      id: key,
      ...(sort ? { accessorFn: (row: Row & object) => sort(row) ?? undefined } : {}),
      sortFn: (a, b, id) => compare(a.getValue<SortValue>(id), b.getValue<SortValue>(id)),
      sortUndefined: 'last' as const,
      sortDescFirst: numeric ?? false,
    })),
    enableMultiSort: false,
  })
  const head = columns.map((column): SortedColumn<Row> => {
    const own = table.getColumn(column.key)
    const direction = own?.getIsSorted()
    return {
      column,
      direction: direction ? (direction === 'asc' ? 'ascending' : 'descending') : null,
      toggle: own?.getCanSort()
        ? () => {
            own.toggleSorting()
          }
        : undefined,
    }
  })
  return {
    rows: table.getRowModel().rows.map((row) => row.original),
    head,
    isSorted: head.some((each) => each.direction !== null),
  }
}
