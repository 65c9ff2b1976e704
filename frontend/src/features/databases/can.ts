import type { BranchDatabase, Role } from '~/api/types'

/** Why a role cannot be deleted now; null where it can. The API has the same rules and the last word. */
export function deleteRoleRefusal(role: Role, roles: Role[], databases: BranchDatabase[]): string | null {
  const owned = databases.filter((database) => database.owner_name === role.name).map((database) => database.name)
  if (owned.length > 0)
    return `It owns ${owned.join(', ')}: give ${owned.length > 1 ? 'them' : 'it'} another owner first.`
  if (roles.length === 1) return 'It is the only role: nobody could log in without it.'
  return null
}
