import { queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'
import { projectKeys } from '~/shared/project-keys'

export const endpointsQuery = (projectId: string) =>
  queryOptions({
    queryKey: [...projectKeys.one(projectId), 'endpoints'],
    queryFn: () =>
      unwrap(client.GET('/api/v2/projects/{project_id}/endpoints', { params: { path: { project_id: projectId } } })),
    refetchInterval: 3_000,
  })

export function createEndpoint(projectId: string, branchId: string) {
  return unwrap(
    client.POST('/api/v2/projects/{project_id}/endpoints', {
      params: { path: { project_id: projectId } },
      body: { endpoint: { branch_id: branchId, type: 'read_write' } },
    }),
  )
}

export function startEndpoint(projectId: string, endpointId: string) {
  return unwrap(
    client.POST('/api/v2/projects/{project_id}/endpoints/{endpoint_id}/start', {
      params: { path: { project_id: projectId, endpoint_id: endpointId } },
    }),
  )
}

export function suspendEndpoint(projectId: string, endpointId: string) {
  return unwrap(
    client.POST('/api/v2/projects/{project_id}/endpoints/{endpoint_id}/suspend', {
      params: { path: { project_id: projectId, endpoint_id: endpointId } },
    }),
  )
}

export function changeIdleTime(projectId: string, endpointId: string, seconds: number) {
  return unwrap(
    client.PATCH('/api/v2/projects/{project_id}/endpoints/{endpoint_id}', {
      params: { path: { project_id: projectId, endpoint_id: endpointId } },
      body: { endpoint: { suspend_timeout_seconds: seconds } },
    }),
  )
}

export async function connectionUri(
  projectId: string,
  branchId: string,
  role: string,
  database: string,
): Promise<string> {
  const { uri } = await unwrap(
    client.GET('/api/v2/projects/{project_id}/connection_uri', {
      params: {
        path: { project_id: projectId },
        query: { branch_id: branchId, role_name: role, database_name: database },
      },
    }),
  )
  return uri
}

/** The first role and database of a branch, which every project is created with. */
export async function branchRolesAndDatabases(
  projectId: string,
  branchId: string,
): Promise<{ role: string; database: string }> {
  const params = { params: { path: { project_id: projectId, branch_id: branchId } } }
  const [{ roles }, { databases }] = await Promise.all([
    unwrap(client.GET('/api/v2/projects/{project_id}/branches/{branch_id}/roles', params)),
    unwrap(client.GET('/api/v2/projects/{project_id}/branches/{branch_id}/databases', params)),
  ])
  const database = databases[0]
  if (!database) throw new Error('This branch has no database yet. Wait until the project is ready.')
  return {
    role: roles.find((role) => role.name === database.owner_name)?.name ?? database.owner_name,
    database: database.name,
  }
}
