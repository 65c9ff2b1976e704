import { queryOptions } from '@tanstack/react-query'
import createClient from 'openapi-fetch'

import { client, unwrap } from '~/api/client'
import { ApiError } from '~/api/errors'

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

/** An identity provider that people may sign in by; `start_url` is where the browser goes for it. */
export type Provider = { id: string; name: string; start_url: string }

type ProviderPaths = {
  '/api/v2/auth/providers': {
    get: { responses: { 200: { content: { 'application/json': { providers: Provider[] } } } } }
  }
}

// Beside the generated client: an API without identity providers has no such route, and answers 404.
const providerClient = createClient<ProviderPaths>({ baseUrl: '/' })

export const providersQuery = queryOptions({
  queryKey: ['providers'],
  queryFn: async () => {
    try {
      return (await unwrap(providerClient.GET('/api/v2/auth/providers'))).providers
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return []
      throw error
    }
  },
  staleTime: 60_000,
  retry: false,
})

/** Where the browser goes to sign in by a provider, and to come back to a page of the console. */
export function startUrl(provider: Provider, then: string): string {
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
