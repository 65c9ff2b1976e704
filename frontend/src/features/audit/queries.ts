import { infiniteQueryOptions, keepPreviousData } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'

/** Which entries: those of one project, of one resource such as `branch/br-...`, of one account or action, or all.
 * An action that ends in a dot means all that begin with it. From `since` on, and before `until`: as ISO 8601. */
export type AuditFilter = {
  project?: string
  resource?: string
  actor?: string
  action?: string
  since?: string
  until?: string
}

const asked = ({ project, ...rest }: AuditFilter) => ({ ...rest, ...(project ? { project_id: project } : {}) })

/** Where the same entries are as a file. */
export const exportPath = (filter: AuditFilter) =>
  `/api/v2/audit/export?${new URLSearchParams(asked(filter)).toString()}`

/** Newest first, a page at a time. */
export const auditQuery = (filter: AuditFilter) =>
  infiniteQueryOptions({
    queryKey: ['audit', filter],
    queryFn: ({ pageParam }) =>
      unwrap(
        client.GET('/api/v2/audit', {
          params: {
            query: {
              limit: 50,
              ...asked(filter),
              ...(pageParam ? { cursor: pageParam } : {}),
            },
          },
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.pagination.cursor ?? null,
    placeholderData: keepPreviousData,
    refetchInterval: 10_000,
  })
