import { queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'

import { projectKeys } from './projects'

export const branchesQuery = (projectId: string) =>
  queryOptions({
    queryKey: [...projectKeys.one(projectId), 'branches'],
    queryFn: () => unwrap(client.GET('/api/v2/projects/{project_id}/branches', { params: { path: { project_id: projectId } } })),
    refetchInterval: 3_000,
  })

export type BranchInput = { name: string; parentId: string; from: 'head' | 'lsn' | 'timestamp'; at: string; withCompute: boolean }

export function createBranch(projectId: string, input: BranchInput) {
  return unwrap(
    client.POST('/api/v2/projects/{project_id}/branches', {
      params: { path: { project_id: projectId } },
      body: {
        branch: {
          name: input.name,
          parent_id: input.parentId,
          ...(input.from === 'lsn' ? { parent_lsn: input.at } : {}),
          ...(input.from === 'timestamp' ? { parent_timestamp: new Date(input.at).toISOString() } : {}),
        },
        ...(input.withCompute ? { endpoints: [{ type: 'read_write' as const }] } : {}),
      },
    }),
  )
}

export function deleteBranch(projectId: string, branchId: string) {
  return unwrap(
    client.DELETE('/api/v2/projects/{project_id}/branches/{branch_id}', {
      params: { path: { project_id: projectId, branch_id: branchId } },
    }),
  )
}
