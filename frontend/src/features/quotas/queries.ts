import { queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'
import { projectKeys } from '~/shared/project-keys'

export const accountQuotasQuery = queryOptions({
  // Below the projects' key: what is made or deleted in any of them changes what is used.
  queryKey: [...projectKeys.all, 'account-quotas'],
  queryFn: () => unwrap(client.GET('/api/v2/quotas')),
  refetchInterval: 30_000,
})

export const projectQuotasQuery = (id: string) =>
  queryOptions({
    queryKey: [...projectKeys.one(id), 'quotas'],
    queryFn: () =>
      unwrap(client.GET('/api/v2/projects/{project_id}/quotas', { params: { path: { project_id: id } } })),
    refetchInterval: 30_000,
  })
