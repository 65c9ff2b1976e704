import { queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'

export const sessionQuery = queryOptions({
  queryKey: ['session'],
  queryFn: () => unwrap(client.GET('/api/v2/auth/session')),
  staleTime: 60_000,
  retry: false,
})

export async function signIn(apiKey: string): Promise<void> {
  await unwrap(client.POST('/api/v2/auth/session', { body: { api_key: apiKey } }))
}

export async function signOut(): Promise<void> {
  await unwrap(client.DELETE('/api/v2/auth/session'))
}
