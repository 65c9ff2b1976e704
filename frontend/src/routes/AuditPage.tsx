import { useInfiniteQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useDeferredValue, useState } from 'react'

import type { AuditEntry } from '~/api/types'
import { AuditEntryDrawer } from '~/features/audit/AuditEntryDrawer'
import { AuditFilterFields } from '~/features/audit/AuditFilterFields'
import { AuditTable } from '~/features/audit/AuditTable'
import { auditQuery, exportPath } from '~/features/audit/queries'
import { parseAudit } from '~/features/audit/search'
import { useRefusal } from '~/features/session/use-session'
import { PagedList } from '~/shared/PagedList'
import { PageHeader } from '~/shared/PageHeader'
import { BUTTON_LINK } from '~/ui/button-link'
import { Card } from '~/ui/Card'
import { Notice } from '~/ui/Notice'

const TITLE = 'Audit log'

export function AuditPage() {
  const refused = useRefusal({ least: 'admin', whole: true })
  if (refused !== null)
    return (
      <>
        <PageHeader title={TITLE} />
        <Notice tone="warn">{refused}</Notice>
      </>
    )
  return <AuditLog />
}

function AuditLog() {
  const filter = useSearch({ from: '/app/audit' })
  const navigate = useNavigate({ from: '/audit' })
  const query = useInfiniteQuery(auditQuery(useDeferredValue(filter)))
  const [open, setOpen] = useState<AuditEntry | null>(null)
  const entries = query.data?.pages.flatMap((page) => page.entries) ?? []
  return (
    <>
      <PageHeader
        title={TITLE}
        note="Every change, every password that was shown and every sign-in. Newest first."
        actions={
          <a href={exportPath(filter)} download="weir-audit.ndjson" className={BUTTON_LINK}>
            Export
          </a>
        }
      />
      <Card>
        <AuditFilterFields
          filter={filter}
          onChange={(change) =>
            void navigate({ search: parseAudit({ ...filter, ...change }), replace: true, resetScroll: false })
          }
        />
        <PagedList query={query} what="audit log" shown={entries.length}>
          <AuditTable entries={entries} partial={query.hasNextPage} onOpen={setOpen} />
        </PagedList>
        <p className="mt-3 text-xs text-muted">
          Entries are sealed by a chain of hashes, which <code>weir-admin audit verify</code> checks on the
          installation’s machine.
        </p>
      </Card>
      {open && (
        <AuditEntryDrawer
          entry={open}
          onClose={() => {
            setOpen(null)
          }}
        />
      )}
    </>
  )
}
