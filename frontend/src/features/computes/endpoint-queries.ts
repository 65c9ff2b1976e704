import { queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'
import { ApiError } from '~/api/errors'
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

/** Refused with the code `UNLOGGED_ROWS` while unlogged tables hold rows, unless those may go. */
export function suspendEndpoint(projectId: string, endpointId: string, discardUnlogged = false) {
  return unwrap(
    client.POST('/api/v2/projects/{project_id}/endpoints/{endpoint_id}/suspend', {
      params: {
        path: { project_id: projectId, endpoint_id: endpointId },
        query: { discard_unlogged: discardUnlogged },
      },
    }),
  )
}

export type IdleChoice = { suspend_timeout_seconds: number; prewarm: boolean }

/** When a compute is suspended by itself, and how it starts after that. */
export function changeIdle(projectId: string, endpointId: string, choice: IdleChoice) {
  return unwrap(
    client.PATCH('/api/v2/projects/{project_id}/endpoints/{endpoint_id}', {
      params: { path: { project_id: projectId, endpoint_id: endpointId } },
      body: { endpoint: choice },
    }),
  )
}

export type ConnectionChoice = { role: string; database: string; pooled: boolean }

/** The string that a client connects by, with the role's password in it. */
export async function connectionUri(projectId: string, branchId: string, choice: ConnectionChoice): Promise<string> {
  const { uri } = await unwrap(
    client.GET('/api/v2/projects/{project_id}/connection_uri', {
      params: {
        path: { project_id: projectId },
        query: {
          branch_id: branchId,
          role_name: choice.role,
          database_name: choice.database,
          pooled: choice.pooled,
        },
      },
    }),
  )
  return uri
}

/** The certificate of the CA by which clients know the proxy, PEM; null where Weir has none to give. */
export async function certificateAuthority(): Promise<string | null> {
  try {
    const { certificate_authority } = await unwrap(client.GET('/api/v2/certificate_authority'))
    return certificate_authority.pem
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null
    throw error
  }
}

export type RolesAndDatabases = { roles: string[]; databases: { name: string; owner: string }[] }

/** The roles and databases of a branch; every project is created with one of each. */
export async function rolesAndDatabases(projectId: string, branchId: string): Promise<RolesAndDatabases> {
  const params = { params: { path: { project_id: projectId, branch_id: branchId } } }
  const [{ roles }, { databases }] = await Promise.all([
    unwrap(client.GET('/api/v2/projects/{project_id}/branches/{branch_id}/roles', params)),
    unwrap(client.GET('/api/v2/projects/{project_id}/branches/{branch_id}/databases', params)),
  ])
  if (databases.length === 0) throw new Error('This branch has no database yet. Wait until the project is ready.')
  return {
    roles: roles.map((role) => role.name),
    databases: databases.map((database) => ({ name: database.name, owner: database.owner_name })),
  }
}
