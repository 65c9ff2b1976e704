import { infiniteQueryOptions, keepPreviousData } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'

/** Which entries: those of one project, of one resource such as `branch/br-...`, or all. */
export type AuditFilter = { project?: string; resource?: string }

/** Newest first, a page at a time. */
export const auditQuery = ({ project, resource }: AuditFilter) =>
  infiniteQueryOptions({
    queryKey: ['audit', project ?? '', resource ?? ''],
    queryFn: ({ pageParam }) =>
      unwrap(
        client.GET('/api/v2/audit', {
          params: {
            query: {
              limit: 50,
              ...(project ? { project_id: project } : {}),
              ...(resource ? { resource } : {}),
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
