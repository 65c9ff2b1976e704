import { queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'
import type { Operation } from '~/api/types'
import { projectKeys } from '~/shared/project-keys'

/** Whether an operation has yet to end; so has one that is not known yet. */
export function isOpen(status: Operation['status'] | undefined): boolean {
  return status === undefined || status === 'scheduling' || status === 'running' || status === 'cancelling'
}

export const operationsQuery = (id: string) =>
  queryOptions({
    queryKey: [...projectKeys.one(id), 'operations'],
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/projects/{project_id}/operations', {
          params: { path: { project_id: id }, query: { limit: 20 } },
        }),
      ),
    refetchInterval: 2_000,
  })

export const operationQuery = (projectId: string, operationId: string) =>
  queryOptions({
    queryKey: [...projectKeys.one(projectId), 'operations', operationId],
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/projects/{project_id}/operations/{operation_id}', {
          params: { path: { project_id: projectId, operation_id: operationId } },
        }),
      ),
    refetchInterval: (query) => (isOpen(query.state.data?.operation.status) ? 1_000 : false),
  })
