import { queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'

export const keysKey = ['api-keys'] as const

export const keysQuery = queryOptions({
  queryKey: keysKey,
  queryFn: () => unwrap(client.GET('/api/v2/api_keys')),
  refetchInterval: 10_000,
})

/** The answer has the key itself, which no later answer has. */
export function createKey(name: string) {
  return unwrap(client.POST('/api/v2/api_keys', { body: { key_name: name } }))
}

export function revokeKey(id: number) {
  return unwrap(client.DELETE('/api/v2/api_keys/{key_id}', { params: { path: { key_id: id } } }))
}
