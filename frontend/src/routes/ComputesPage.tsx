import { useInfiniteQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useDeferredValue, useMemo } from 'react'

import { ComputeTable } from '~/features/computes/ComputeTable'
import { type ComputesFilter, computesQuery } from '~/features/computes/queries'
import { parseComputes } from '~/features/computes/search'
import { count } from '~/lib/format'
import { PagedList } from '~/shared/PagedList'
import { PageHeader } from '~/shared/PageHeader'
import { Card } from '~/ui/Card'
import { SelectField, TextField } from '~/ui/Field'

function Filters({ filter, onFilter }: { filter: ComputesFilter; onFilter: (filter: ComputesFilter) => void }) {
  const set = (change: Record<string, unknown>) => {
    onFilter(parseComputes({ ...filter, ...change }))
  }
  return (
    <div className="mb-2 grid gap-x-3 sm:grid-cols-3">
      <TextField
        label="Compute, project or branch"
        type="search"
        value={filter.q ?? ''}
        onChange={(event) => {
          set({ q: event.target.value })
        }}
      />
      <SelectField
        label="Should run"
        value={filter.wanted ?? ''}
        onChange={(event) => {
          set({ wanted: event.target.value })
        }}
      >
        <option value="">Running or suspended</option>
        <option value="active">Running</option>
        <option value="idle">Suspended</option>
      </SelectField>
      <SelectField
        label="Image pushdown"
        value={filter.pushdown === undefined ? '' : String(filter.pushdown)}
        onChange={(event) => {
          set({ pushdown: event.target.value === '' ? undefined : event.target.value === 'true' })
        }}
      >
        <option value="">Wanted or not</option>
        <option value="true">Wanted</option>
        <option value="false">Not wanted</option>
      </SelectField>
    </div>
  )
}

export function ComputesPage() {
  const filter = useSearch({ from: '/app/computes' })
  const navigate = useNavigate({ from: '/computes' })
  const query = useInfiniteQuery(computesQuery(useDeferredValue(filter)))
  const { data } = query
  // A compute that is made between two pages moves the others along: nobody is shown twice.
  const rows = useMemo(
    () => [...new Map(data?.pages.flatMap((page) => page.computes).map((row) => [row.id, row])).values()],
    [data],
  )
  return (
    <>
      <PageHeader
        title="Computes"
        note={data ? `${count(rows.length)} of ${count(data.pages[0]?.total)} shown, newest first` : undefined}
      />
      <Card>
        <Filters
          filter={filter}
          onFilter={(next) => void navigate({ search: next, replace: true, resetScroll: false })}
        />
        <PagedList query={query} what="computes" shown={rows.length}>
          <ComputeTable computes={rows} partial={query.hasNextPage} />
        </PagedList>
      </Card>
    </>
  )
}
