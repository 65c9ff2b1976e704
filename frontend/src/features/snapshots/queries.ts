import { queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'
import type { BackupScheduleItem } from '~/api/types'
import { asked, type Point } from '~/features/branches/queries'
import { projectKeys } from '~/shared/project-keys'

export const snapshotsQuery = (projectId: string) =>
  queryOptions({
    queryKey: [...projectKeys.one(projectId), 'snapshots'],
    queryFn: () =>
      unwrap(client.GET('/api/v2/projects/{project_id}/snapshots', { params: { path: { project_id: projectId } } })),
    refetchInterval: 3_000,
  })

/** When snapshots of a branch are taken by themselves. */
export const scheduleQuery = (projectId: string, branchId: string) =>
  queryOptions({
    queryKey: [...projectKeys.one(projectId), 'branches', branchId, 'schedule'],
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/projects/{project_id}/branches/{branch_id}/backup_schedule', {
          params: { path: { project_id: projectId, branch_id: branchId } },
        }),
      ),
    refetchInterval: 10_000,
  })

/** `expires`: as a `datetime-local` field says it; empty is never. */
export type SnapshotInput = { branchId: string; name: string; point: Point; expires: string }

export function createSnapshot(projectId: string, { branchId, name, point, expires }: SnapshotInput) {
  return unwrap(
    client.POST('/api/v2/projects/{project_id}/branches/{branch_id}/snapshot', {
      params: {
        path: { project_id: projectId, branch_id: branchId },
        query: {
          ...asked(point),
          ...(name ? { name } : {}),
          ...(expires ? { expires_at: new Date(expires).toISOString() } : {}),
        },
      },
    }),
  )
}

/** `inPlace`: the branch gets the state at once; otherwise a branch called `name` has it, which may replace the other later. */
export type RestoreInput = { targetId: string | null; inPlace: boolean; name: string }

export function restoreSnapshot(projectId: string, snapshotId: string, { targetId, inPlace, name }: RestoreInput) {
  return unwrap(
    client.POST('/api/v2/projects/{project_id}/snapshots/{snapshot_id}/restore', {
      params: { path: { project_id: projectId, snapshot_id: snapshotId } },
      body: {
        finalize_restore: inPlace,
        ...(targetId === null ? {} : { target_branch_id: targetId }),
        ...(inPlace || !name ? {} : { name }),
      },
    }),
  )
}

/** The branch that a restore was to replace gets what the branch it made holds. */
export function finalizeRestore(projectId: string, branchId: string) {
  return unwrap(
    client.POST('/api/v2/projects/{project_id}/branches/{branch_id}/finalize_restore', {
      params: { path: { project_id: projectId, branch_id: branchId } },
    }),
  )
}

export function deleteSnapshot(projectId: string, snapshotId: string) {
  return unwrap(
    client.DELETE('/api/v2/projects/{project_id}/snapshots/{snapshot_id}', {
      params: { path: { project_id: projectId, snapshot_id: snapshotId } },
    }),
  )
}

export function setSchedule(projectId: string, branchId: string, schedule: BackupScheduleItem[]) {
  return unwrap(
    client.PUT('/api/v2/projects/{project_id}/branches/{branch_id}/backup_schedule', {
      params: { path: { project_id: projectId, branch_id: branchId } },
      body: { schedule },
    }),
  )
}
