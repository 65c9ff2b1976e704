import { client, unwrap } from '~/api/client'

// While the person signs in, the token waits here: in an address it would be in the browser's history.
const KEPT = 'weir-invitation'

/** The token of the link that was opened, or of the one that was opened before signing in; null without either. */
export function invitationToken(hash: string): string | null {
  const given = hash.replace(/^#/, '')
  if (given) {
    sessionStorage.setItem(KEPT, given)
  }
  return given || sessionStorage.getItem(KEPT)
}

/** As the person who is signed in, or, with a password, as a new account for the invited email. */
export async function acceptInvitation(token: string, account?: { name: string; password: string }) {
  const body = account ? { token, ...account } : { token }
  const accepted = await unwrap(client.POST('/api/v2/invitations/accept', { body }))
  sessionStorage.removeItem(KEPT)
  return accepted
}
