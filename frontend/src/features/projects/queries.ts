import { keepPreviousData, queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'
import type { DurabilityLevel } from '~/api/types'
import { projectKeys } from '~/shared/project-keys'

/** Projects that a list of the newest holds at most. */
export const NEWEST = 100

/** The newest projects whose name holds `search`; the server searches, so that any number of projects will do. */
export const projectSearchQuery = (search: string) =>
  queryOptions({
    queryKey: [...projectKeys.all, 'search', search],
    queryFn: () =>
      unwrap(client.GET('/api/v2/projects', { params: { query: { limit: NEWEST, ...(search ? { search } : {}) } } })),
    placeholderData: keepPreviousData,
    refetchInterval: 5_000,
  })

export const projectQuery = (id: string) =>
  queryOptions({
    queryKey: projectKeys.one(id),
    queryFn: () => unwrap(client.GET('/api/v2/projects/{project_id}', { params: { path: { project_id: id } } })),
  })

export function createProject(name: string) {
  return unwrap(client.POST('/api/v2/projects', { body: { project: { name } } }))
}

/** `quotaBytes` limits the data of each branch, `walBytesPerSecond` the WAL of each compute; 0 is no limit. */
export function updateProject(
  id: string,
  change: {
    historySeconds?: number
    quotaBytes?: number
    walBytesPerSecond?: number
    forbidLevels?: DurabilityLevel[]
  },
) {
  return unwrap(
    client.PATCH('/api/v2/projects/{project_id}', {
      params: { path: { project_id: id } },
      body: {
        project: {
          ...(change.historySeconds === undefined ? {} : { history_retention_seconds: change.historySeconds }),
          ...(change.forbidLevels === undefined ? {} : { settings: { durability: { forbid: change.forbidLevels } } }),
          ...(change.quotaBytes === undefined
            ? {}
            : { settings: { quota: { logical_size_bytes: change.quotaBytes } } }),
          ...(change.walBytesPerSecond === undefined
            ? {}
            : { settings: { quota: { wal_bytes_per_second: change.walBytesPerSecond } } }),
        },
      },
    }),
  )
}

/** The answer has the id by which the project can be taken, which no later answer has. */
export function offerProject(id: string, seconds: number) {
  return unwrap(
    client.POST('/api/v2/projects/{project_id}/transfer_requests', {
      params: { path: { project_id: id } },
      body: { ttl_seconds: seconds },
    }),
  )
}

/** Takes an offered project; the answer is its id. */
export async function acceptProject({ project, request }: { project: string; request: string }) {
  await unwrap(
    client.PUT('/api/v2/projects/{offered_project_id}/transfer_requests/{request_id}', {
      params: { path: { offered_project_id: project, request_id: request } },
      body: {},
    }),
  )
  return project
}

export function deleteProject(id: string) {
  return unwrap(client.DELETE('/api/v2/projects/{project_id}', { params: { path: { project_id: id } } }))
}
