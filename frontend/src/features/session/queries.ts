import { queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'
import { ApiError } from '~/api/errors'
import type { AuthProvider } from '~/api/types'

export const sessionQuery = queryOptions({
  queryKey: ['session'],
  queryFn: () => unwrap(client.GET('/api/v2/auth/session')),
  staleTime: 60_000,
  retry: false,
})

/** Opens a session that may do what the key may. */
export async function signInByKey(apiKey: string): Promise<void> {
  await unwrap(client.POST('/api/v2/auth/session', { body: { api_key: apiKey } }))
}

/** `code`: of the second factor; empty where none is known to be asked for. */
export type Credentials = { email: string; password: string; code: string }

/** Opens a session of the person. An ApiError with the code CODE_REQUIRED: the password is right, and a code is missing. */
export async function signIn({ email, password, code }: Credentials): Promise<void> {
  await unwrap(client.POST('/api/v2/auth/sign_in', { body: { email, password, ...(code ? { code } : {}) } }))
}

export async function signOut(): Promise<void> {
  await unwrap(client.DELETE('/api/v2/auth/session'))
}

export const providersQuery = queryOptions({
  queryKey: ['providers'],
  queryFn: async () => {
    try {
      return (await unwrap(client.GET('/api/v2/auth/providers'))).providers
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return []
      throw error
    }
  },
  staleTime: 60_000,
  retry: false,
})

/** Where the browser goes to sign in by a provider, and to come back to a page of the console. */
export function startUrl(provider: AuthProvider, then: string): string {
  const separator = provider.start_url.includes('?') ? '&' : '?'
  return `${provider.start_url}${separator}next=${encodeURIComponent(then)}`
}

/** The organisations that who is signed in belongs to; of an API key the one that it is of. */
export const organizationsQuery = queryOptions({
  queryKey: ['session', 'organizations'],
  queryFn: () => unwrap(client.GET('/api/v2/users/me/organizations')),
  staleTime: 60_000,
})

/** From now on this session's requests act in that organisation. */
export async function chooseOrganization(id: string): Promise<void> {
  await unwrap(client.PUT('/api/v2/auth/session/organization', { body: { org_id: id } }))
}
