import { infiniteQueryOptions, queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'
import type { Operation } from '~/api/types'
import { projectKeys } from '~/shared/project-keys'

/** Whether an operation has yet to end; so has one that is not known yet. */
export function isOpen(status: Operation['status'] | undefined): boolean {
  return status === undefined || status === 'scheduling' || status === 'running' || status === 'cancelling'
}

const operationKeys = (projectId: string) => [...projectKeys.one(projectId), 'operations'] as const

/** Newest first, a page at a time. */
export const operationsQuery = (id: string) =>
  infiniteQueryOptions({
    queryKey: [...operationKeys(id), 'list'],
    queryFn: ({ pageParam }) =>
      unwrap(
        client.GET('/api/v2/projects/{project_id}/operations', {
          params: { path: { project_id: id }, query: { limit: 20, ...(pageParam ? { cursor: pageParam } : {}) } },
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.pagination.cursor ?? null,
    refetchInterval: 2_000,
  })

export function cancelOperation(operation: Operation) {
  return unwrap(
    client.POST('/api/v2/projects/{project_id}/operations/{operation_id}/cancel', {
      params: { path: { project_id: operation.project_id, operation_id: operation.id } },
    }),
  )
}

export const operationQuery = (projectId: string, operationId: string) =>
  queryOptions({
    queryKey: [...operationKeys(projectId), operationId],
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/projects/{project_id}/operations/{operation_id}', {
          params: { path: { project_id: projectId, operation_id: operationId } },
        }),
      ),
    refetchInterval: (query) => (isOpen(query.state.data?.operation.status) ? 1_000 : false),
  })
