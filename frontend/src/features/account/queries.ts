import { queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'
import { ApiError } from '~/api/errors'
import type { PasswordProof, ProviderLink } from '~/api/types'

export const ownSessionsKey = ['own-sessions'] as const

/** The console sessions of who is signed in, or, for an API key, those that it has opened. */
export const ownSessionsQuery = queryOptions({
  queryKey: ownSessionsKey,
  queryFn: () => unwrap(client.GET('/api/v2/auth/sessions')),
  refetchInterval: 30_000,
})

export async function endSession(id: string): Promise<void> {
  await unwrap(client.DELETE('/api/v2/auth/sessions/{session_id}', { params: { path: { session_id: id } } }))
}

/** Ends each of them; one that has ended meanwhile is no failure. */
export async function endSessions(ids: string[]): Promise<void> {
  for (const id of ids) {
    try {
      await endSession(id)
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 404)) throw error
    }
  }
}

/** What a person proves themselves with, again: `code` is empty where they have no second factor. */
export type Proof = { password: string; code: string }

const asked = ({ password, code }: Proof): PasswordProof => ({
  password,
  ...(code.trim() ? { code: code.trim() } : {}),
})

/** All other sessions of the person end. */
export async function changePassword({ newPassword, ...proof }: Proof & { newPassword: string }): Promise<void> {
  await unwrap(client.PUT('/api/v2/auth/password', { body: { ...asked(proof), new_password: newPassword } }))
}

/** The secret of a second factor, which counts once a code of it is confirmed. No later answer has it. */
export function beginTotp(proof: Proof) {
  return unwrap(client.POST('/api/v2/auth/totp', { body: asked(proof) }))
}

/** The recovery codes, which no later answer has. */
export function confirmTotp(code: string) {
  return unwrap(client.POST('/api/v2/auth/totp/confirm', { body: { code: code.trim() } }))
}

export async function endTotp(proof: Proof): Promise<void> {
  await unwrap(client.POST('/api/v2/auth/totp/end', { body: asked(proof) }))
}

export const linksKey = ['provider-links'] as const

/** By whom at which identity providers the person signs in. */
export const linksQuery = queryOptions({
  queryKey: linksKey,
  queryFn: () => unwrap(client.GET('/api/v2/auth/links')),
})

/** Where the browser goes to sign in at the provider; whoever does is linked with who is signed in here. */
export function beginLink(providerId: string, proof: Proof) {
  const params = { path: { provider_id: providerId } }
  return unwrap(client.POST('/api/v2/auth/oidc/{provider_id}/link', { params, body: asked(proof) }))
}

export async function endLink({ issuer, subject }: ProviderLink, proof: Proof): Promise<void> {
  await unwrap(client.POST('/api/v2/auth/links/end', { body: { ...asked(proof), issuer, subject } }))
}
