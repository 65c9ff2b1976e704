import type { MemberRole, SessionUser } from '~/api/types'
import type { Needs } from '~/ui/permission'

/** From the least to the greatest; each may do all that the one before it may. */
export const ROLES = ['viewer', 'member', 'admin', 'owner'] as const satisfies readonly MemberRole[]

/** Whether a role may do all that `other` may. */
export function covers(role: MemberRole, other: MemberRole): boolean {
  return ROLES.indexOf(role) >= ROLES.indexOf(other)
}

const WITH_ARTICLE: Record<MemberRole, string> = {
  viewer: 'a viewer',
  member: 'a member',
  admin: 'an admin',
  owner: 'an owner',
}

/**
 * What something asks for. `whole`: it is of all of the organisation, and no key of one project reaches it.
 * `installation`: it is for organisations of operators.
 */
export type Need = { least: MemberRole; whole?: boolean; installation?: boolean }

/** What the controls of the console ask for, as the API's list of rules has it. */
export const NEEDS: Record<Needs, Need> = {
  works: { least: 'member' },
  decides: { least: 'admin' },
  'works-in-all': { least: 'member', whole: true },
  'decides-on-all': { least: 'admin', whole: true },
  runs: { least: 'admin', whole: true, installation: true },
}

/** Why who is signed in may not do what asks for that; null where they may. The API has the last word (`weir.authz.rules`). */
export function refusal(user: SessionUser, { least, whole = false, installation = false }: Need): string | null {
  if (user.role === null) return 'You are a member of no organisation. An admin of one has to add you.'
  if (whole && user.project_id !== null)
    return `You signed in with a key of project ${user.project_id} alone. Use one of the organisation.`
  if (installation && !user.operator) return 'This is for organisations of operators only.'
  if (covers(user.role, least)) return null
  const who = user.read_only
    ? 'The key that you signed in with only reads'
    : `You are ${WITH_ARTICLE[user.role]} here`
  return `${who}. This is for ${WITH_ARTICLE[least]}${least === 'owner' ? '' : ' or a greater role'}.`
}

/** Why passwords and second factors are closed to who is signed in; null for a person. */
export function personRefusal(user: SessionUser): string | null {
  return user.person === null ? 'You signed in with an API key. Sign in with email and password for this.' : null
}
