import { queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'

export const keysKey = ['api-keys'] as const

export const keysQuery = queryOptions({
  queryKey: keysKey,
  queryFn: () => unwrap(client.GET('/api/v2/api_keys')),
  refetchInterval: 10_000,
})

/** A key that may do what its maker may, or less: in one project, reading alone, up to a moment. */
export type NewKey = { name: string; projectId: string | null; readOnly: boolean; expiresAt: string | null }

/** The answer has the key itself, which no later answer has. */
export function createKey({ name, projectId, readOnly, expiresAt }: NewKey) {
  return unwrap(
    client.POST('/api/v2/api_keys', {
      body: {
        key_name: name,
        ...(projectId === null ? {} : { project_id: projectId }),
        ...(readOnly ? { read_only: true } : {}),
        ...(expiresAt === null ? {} : { expires_at: expiresAt }),
      },
    }),
  )
}

export function revokeKey(id: number) {
  return unwrap(client.DELETE('/api/v2/api_keys/{key_id}', { params: { path: { key_id: id } } }))
}
