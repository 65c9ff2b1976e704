import { queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'
import type { DurabilityLevel } from '~/api/types'
import { projectKeys } from '~/shared/project-keys'

/** What a branch's commits wait for, and which levels policies leave to choose from. */
export const branchDurabilityQuery = (projectId: string, branchId: string) =>
  queryOptions({
    queryKey: [...projectKeys.one(projectId), 'branches', branchId, 'durability'],
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/projects/{project_id}/branches/{branch_id}/durability', {
          params: { path: { project_id: projectId, branch_id: branchId } },
        }),
      ),
    refetchInterval: 10_000,
  })

/** What roles and databases of a running compute have chosen. */
export const computeDurabilityQuery = (computeId: string) =>
  queryOptions({
    queryKey: ['computes', computeId, 'durability'],
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/computes/{endpoint_id}/durability', { params: { path: { endpoint_id: computeId } } }),
      ),
    refetchInterval: 15_000,
  })

export function setDurability(projectId: string, branchId: string, durability: DurabilityLevel) {
  return unwrap(
    client.PATCH('/api/v2/projects/{project_id}/branches/{branch_id}', {
      params: { path: { project_id: projectId, branch_id: branchId } },
      body: { branch: { durability } },
    }),
  )
}
