import { keepPreviousData, queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'

export const projectKeys = { all: ['projects'] as const, one: (id: string) => ['projects', id] as const }

/** The newest projects whose name holds `search`; the server searches, so that any number of projects will do. */
export const projectSearchQuery = (search: string) =>
  queryOptions({
    queryKey: [...projectKeys.all, 'search', search],
    queryFn: () => unwrap(client.GET('/api/v2/projects', { params: { query: { limit: 100, ...(search ? { search } : {}) } } })),
    placeholderData: keepPreviousData,
    refetchInterval: 5_000,
  })

export const projectQuery = (id: string) =>
  queryOptions({
    queryKey: projectKeys.one(id),
    queryFn: () => unwrap(client.GET('/api/v2/projects/{project_id}', { params: { path: { project_id: id } } })),
  })

export const operationsQuery = (id: string) =>
  queryOptions({
    queryKey: [...projectKeys.one(id), 'operations'],
    queryFn: () =>
      unwrap(client.GET('/api/v2/projects/{project_id}/operations', { params: { path: { project_id: id }, query: { limit: 20 } } })),
    refetchInterval: 2_000,
  })

export function createProject(name: string) {
  return unwrap(client.POST('/api/v2/projects', { body: { project: { name } } }))
}

export function deleteProject(id: string) {
  return unwrap(client.DELETE('/api/v2/projects/{project_id}', { params: { path: { project_id: id } } }))
}
