import type { Invitation, Member, MemberRole, SessionUser } from '~/api/types'
import { covers, refusal, ROLES } from '~/features/session/access'

/** Why who is signed in may not decide on members at all; null where they may. */
export function decideRefusal(user: SessionUser): string | null {
  return refusal(user, { least: 'admin', whole: true })
}

/** Roles that who is signed in may give: none above their own. */
export function givenRoles(user: SessionUser): MemberRole[] {
  const { role } = user
  return role === null || decideRefusal(user) !== null ? [] : ROLES.filter((each) => covers(role, each))
}

const isLastOwner = ({ member }: Member, members: Member[]): boolean =>
  member.role === 'owner' && members.filter((each) => each.member.role === 'owner').length === 1

/** Why a member's role may not be changed now, nor the member removed; null where both may be. */
export function memberRefusal(user: SessionUser, of: Member, members: Member[]): string | null {
  const closed = decideRefusal(user)
  if (closed !== null) return closed
  if (user.role !== null && !covers(user.role, of.member.role))
    return `${of.user.email} is ${of.member.role}, a greater role than yours.`
  return isLastOwner(of, members) ? 'The last owner. Make somebody else an owner first.' : null
}

/** Why who is signed in may not leave the organisation now; null where they may. */
export function leaveRefusal(user: SessionUser, members: Member[]): string | null {
  if (user.person === null) return 'You signed in with an API key, which belongs to the organisation.'
  const own = members.find(({ member }) => member.user_id === user.id)
  return own !== undefined && isLastOwner(own, members)
    ? 'You are the last owner. Make somebody else one first.'
    : null
}

/** Why an invitation may not be taken back by who is signed in; null where it may. */
export function invitationRefusal(user: SessionUser, of: Invitation): string | null {
  const closed = decideRefusal(user)
  if (closed !== null) return closed
  return user.role !== null && !covers(user.role, of.role)
    ? `${of.email} is invited as ${of.role}, a greater role than yours.`
    : null
}
