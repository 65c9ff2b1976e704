import { useInfiniteQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useDeferredValue } from 'react'

import { AuditTable } from '~/features/audit/AuditTable'
import { auditQuery } from '~/features/audit/queries'
import { parseAudit } from '~/features/audit/search'
import { PagedList } from '~/shared/PagedList'
import { PageHeader } from '~/shared/PageHeader'
import { Card } from '~/ui/Card'
import { TextField } from '~/ui/Field'

export function AuditPage() {
  const filter = useSearch({ from: '/app/audit' })
  const navigate = useNavigate({ from: '/audit' })
  const query = useInfiniteQuery(auditQuery(useDeferredValue(filter)))
  const entries = query.data?.pages.flatMap((page) => page.entries) ?? []
  const set = (change: Record<string, unknown>) =>
    void navigate({ search: parseAudit({ ...filter, ...change }), replace: true, resetScroll: false })
  return (
    <>
      <PageHeader title="Audit log" note="Every change: who made it, to what, by which request. Newest first." />
      <Card>
        <div className="mb-2 grid gap-x-3 sm:grid-cols-2">
          <TextField
            label="Project"
            type="search"
            placeholder="its id"
            value={filter.project ?? ''}
            onChange={(event) => {
              set({ project: event.target.value })
            }}
          />
          <TextField
            label="Resource"
            type="search"
            placeholder="such as branch/br-…"
            value={filter.resource ?? ''}
            onChange={(event) => {
              set({ resource: event.target.value })
            }}
          />
        </div>
        <PagedList query={query} what="audit log" shown={entries.length}>
          <AuditTable entries={entries} partial={query.hasNextPage} />
        </PagedList>
      </Card>
    </>
  )
}
