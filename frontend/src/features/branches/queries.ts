import { queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'
import { projectKeys } from '~/shared/project-keys'

export const branchesQuery = (projectId: string) =>
  queryOptions({
    queryKey: [...projectKeys.one(projectId), 'branches'],
    queryFn: () =>
      unwrap(client.GET('/api/v2/projects/{project_id}/branches', { params: { path: { project_id: projectId } } })),
    refetchInterval: 3_000,
  })

export const branchQuery = (projectId: string, branchId: string) =>
  queryOptions({
    queryKey: [...projectKeys.one(projectId), 'branches', branchId],
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/projects/{project_id}/branches/{branch_id}', {
          params: { path: { project_id: projectId, branch_id: branchId } },
        }),
      ),
    refetchInterval: 3_000,
  })

/** How far back a branch goes, and where its branches were made. */
export const branchHistoryQuery = (projectId: string, branchId: string) =>
  queryOptions({
    queryKey: [...projectKeys.one(projectId), 'branches', branchId, 'history'],
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/projects/{project_id}/branches/{branch_id}/history', {
          params: { path: { project_id: projectId, branch_id: branchId } },
        }),
      ),
    refetchInterval: 10_000,
  })

/** Which state of a branch is meant: its newest, the one of a moment (as a `datetime-local` field says it), or at an LSN. */
export type Point = { from: 'head' | 'timestamp' | 'lsn'; at: string }

/** A point as the API's queries say it. */
export const asked = (point: Point) => ({
  ...(point.from === 'lsn' ? { lsn: point.at.trim() } : {}),
  ...(point.from === 'timestamp' ? { timestamp: new Date(point.at).toISOString() } : {}),
})

/** What storage makes of a point: its LSN and newest commit, or why there is no such state. */
export const historyPointQuery = (projectId: string, branchId: string, point: Point) =>
  queryOptions({
    queryKey: [...projectKeys.one(projectId), 'branches', branchId, 'history', point],
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/projects/{project_id}/branches/{branch_id}/history/point', {
          params: { path: { project_id: projectId, branch_id: branchId }, query: asked(point) },
        }),
      ),
  })

export type BranchInput = { name: string; parentId: string; point: Point; withCompute: boolean }

export function createBranch(projectId: string, input: BranchInput) {
  const { lsn, timestamp } = asked(input.point)
  return unwrap(
    client.POST('/api/v2/projects/{project_id}/branches', {
      params: { path: { project_id: projectId } },
      body: {
        branch: {
          name: input.name,
          parent_id: input.parentId,
          ...(lsn ? { parent_lsn: lsn } : {}),
          ...(timestamp ? { parent_timestamp: timestamp } : {}),
        },
        ...(input.withCompute ? { endpoints: [{ type: 'read_write' as const }] } : {}),
      },
    }),
  )
}

export type RestoreInput = { sourceId: string; point: Point; preserveUnder: string | null }

export function restoreBranch(projectId: string, branchId: string, input: RestoreInput) {
  const { lsn, timestamp } = asked(input.point)
  return unwrap(
    client.POST('/api/v2/projects/{project_id}/branches/{branch_id}/restore', {
      params: { path: { project_id: projectId, branch_id: branchId } },
      body: {
        source_branch_id: input.sourceId,
        ...(lsn ? { source_lsn: lsn } : {}),
        ...(timestamp ? { source_timestamp: timestamp } : {}),
        ...(input.preserveUnder === null ? {} : { preserve_under_name: input.preserveUnder }),
      },
    }),
  )
}

/** Makes a branch independent of its parent. */
export function detachBranch(projectId: string, branchId: string) {
  return unwrap(
    client.POST('/api/v2/projects/{project_id}/branches/{branch_id}/detach', {
      params: { path: { project_id: projectId, branch_id: branchId } },
    }),
  )
}

export function protectBranch(projectId: string, branchId: string, isProtected: boolean) {
  return unwrap(
    client.PATCH('/api/v2/projects/{project_id}/branches/{branch_id}', {
      params: { path: { project_id: projectId, branch_id: branchId } },
      body: { branch: { protected: isProtected } },
    }),
  )
}

/** With `children`, those below go as well. */
export function deleteBranch(projectId: string, branchId: string, children: 'refuse' | 'delete') {
  return unwrap(
    client.DELETE('/api/v2/projects/{project_id}/branches/{branch_id}', {
      params: { path: { project_id: projectId, branch_id: branchId }, query: { children } },
    }),
  )
}
