import { queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'
import { projectKeys } from '~/shared/project-keys'

/** A branch, by the two ids that every address of its roles and databases has. */
export type BranchPlace = { projectId: string; branchId: string }

const path = ({ projectId, branchId }: BranchPlace) => ({ project_id: projectId, branch_id: branchId })

const branchKey = ({ projectId, branchId }: BranchPlace) => [...projectKeys.one(projectId), 'branches', branchId]

export const rolesQuery = (place: BranchPlace) =>
  queryOptions({
    queryKey: [...branchKey(place), 'roles'],
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/projects/{project_id}/branches/{branch_id}/roles', { params: { path: path(place) } }),
      ),
    refetchInterval: 10_000,
  })

export const databasesQuery = (place: BranchPlace) =>
  queryOptions({
    queryKey: [...branchKey(place), 'databases'],
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/projects/{project_id}/branches/{branch_id}/databases', {
          params: { path: path(place) },
        }),
      ),
    refetchInterval: 10_000,
  })

/** The answer has the role's password, which no later answer has. */
export function createRole(place: BranchPlace, name: string) {
  return unwrap(
    client.POST('/api/v2/projects/{project_id}/branches/{branch_id}/roles', {
      params: { path: path(place) },
      body: { role: { name } },
    }),
  )
}

/** The answer has the new password, which no later answer has. */
export function resetPassword(place: BranchPlace, name: string) {
  return unwrap(
    client.POST('/api/v2/projects/{project_id}/branches/{branch_id}/roles/{role_name}/reset_password', {
      params: { path: { ...path(place), role_name: name } },
    }),
  )
}

export function deleteRole(place: BranchPlace, name: string) {
  return unwrap(
    client.DELETE('/api/v2/projects/{project_id}/branches/{branch_id}/roles/{role_name}', {
      params: { path: { ...path(place), role_name: name } },
    }),
  )
}

export function createDatabase(place: BranchPlace, name: string, owner: string) {
  return unwrap(
    client.POST('/api/v2/projects/{project_id}/branches/{branch_id}/databases', {
      params: { path: path(place) },
      body: { database: { name, owner_name: owner } },
    }),
  )
}

export function changeOwner(place: BranchPlace, name: string, owner: string) {
  return unwrap(
    client.PATCH('/api/v2/projects/{project_id}/branches/{branch_id}/databases/{database_name}', {
      params: { path: { ...path(place), database_name: name } },
      body: { database: { owner_name: owner } },
    }),
  )
}

export function deleteDatabase(place: BranchPlace, name: string) {
  return unwrap(
    client.DELETE('/api/v2/projects/{project_id}/branches/{branch_id}/databases/{database_name}', {
      params: { path: { ...path(place), database_name: name } },
    }),
  )
}
