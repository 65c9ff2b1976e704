import { useInfiniteQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useDeferredValue } from 'react'

import { AuditTable } from '~/features/audit/AuditTable'
import { auditQuery, exportPath } from '~/features/audit/queries'
import { parseAudit } from '~/features/audit/search'
import { PagedList } from '~/shared/PagedList'
import { PageHeader } from '~/shared/PageHeader'
import { BUTTON_LINK } from '~/ui/button-link'
import { Card } from '~/ui/Card'
import { TextField } from '~/ui/Field'

const FIELDS = [
  { name: 'project', label: 'Project', placeholder: 'its id' },
  { name: 'resource', label: 'Resource', placeholder: 'such as branch/br-…' },
  { name: 'actor', label: 'Who', placeholder: 'an account’s name' },
  { name: 'action', label: 'Action', placeholder: 'role.delete, or role. for all' },
] as const

export function AuditPage() {
  const filter = useSearch({ from: '/app/audit' })
  const navigate = useNavigate({ from: '/audit' })
  const query = useInfiniteQuery(auditQuery(useDeferredValue(filter)))
  const entries = query.data?.pages.flatMap((page) => page.entries) ?? []
  const set = (change: Record<string, unknown>) =>
    void navigate({ search: parseAudit({ ...filter, ...change }), replace: true, resetScroll: false })
  return (
    <>
      <PageHeader
        title="Audit log"
        note="Every change, every password that was shown and every sign-in. Newest first."
        actions={
          <a href={exportPath(filter)} download="weir-audit.ndjson" className={BUTTON_LINK}>
            Export
          </a>
        }
      />
      <Card>
        <div className="mb-2 grid gap-x-3 sm:grid-cols-2 lg:grid-cols-4">
          {FIELDS.map(({ name, label, placeholder }) => (
            <TextField
              key={name}
              label={label}
              type="search"
              placeholder={placeholder}
              value={filter[name] ?? ''}
              onChange={(event) => {
                set({ [name]: event.target.value })
              }}
            />
          ))}
        </div>
        <PagedList query={query} what="audit log" shown={entries.length}>
          <AuditTable entries={entries} partial={query.hasNextPage} />
        </PagedList>
      </Card>
    </>
  )
}
