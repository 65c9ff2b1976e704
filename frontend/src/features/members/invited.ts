import { mostItems } from '~/api/bounds'
import { zInvitationsRequest } from '~/api/generated/zod/zod.gen'
import type { Invitation, Member } from '~/api/types'
import { covers } from '~/features/session/access'

/** How the API knows an email (`weir.people.schemas`). */
const EMAIL = /^[^@\s]{1,64}@[^@\s]{1,189}$/

export const MOST_AT_ONCE = mostItems(zInvitationsRequest.shape.invitations) ?? Infinity

/** Emails of a text, each once, as the API keeps them: separated by spaces, lines, commas or semicolons. */
export function emailsOf(text: string): string[] {
  const parts = text.split(/[\s,;]+/).filter((part) => part !== '')
  return [...new Set(parts.map((part) => part.toLowerCase()))]
}

/** Why these emails cannot be invited; null where, as far as the console knows, all can. */
export function emailsError(emails: string[], members: Member[]): string | null {
  if (emails.length === 0) return 'Give an email such as name@example.org.'
  const odd = emails.filter((email) => !EMAIL.test(email))
  if (odd.length > 0) return `Not an email: ${odd.join(', ')}. Give emails such as name@example.org.`
  const known = new Set(members.map(({ user }) => user.email))
  const inside = emails.filter((email) => known.has(email))
  if (inside.length > 0) return `Already a member: ${inside.join(', ')}. Change the role among the members.`
  if (emails.length > MOST_AT_ONCE)
    return `${String(emails.length)} emails; at most ${String(MOST_AT_ONCE)} are invited at once.`
  return null
}

/** Which of these emails have an open invitation, that ends when another one is made. */
export function invitedAlready(emails: string[], open: Invitation[]): string[] {
  const known = new Set(open.map(({ email }) => email))
  return emails.filter((email) => known.has(email))
}

/**
 * By whom an invitation was made. `void`: why its link is refused although it is open, as far as the members say; the API
 * asks whoever accepts for an inviter who may still give the role.
 */
export function inviterOf(of: Invitation, members: Member[]): { name: string; void: string | null } {
  if (of.invited_by === of.org_id) return { name: 'an API key', void: null }
  const found = members.find(({ member }) => member.user_id === of.invited_by)
  if (!found) return { name: 'a former member', void: 'Who invited is no member any more, so the link is refused.' }
  const { email } = found.user
  const { role } = found.member
  const may = covers(role, 'admin') && covers(role, of.role)
  return {
    name: email,
    void: may ? null : `${email} is ${role} now and may not invite as ${of.role}, so the link is refused.`,
  }
}
