import type { MemberRole } from '~/api/types'

export function RoleOptions({ roles }: { roles: MemberRole[] }) {
  return roles.map((role) => (
    <option key={role} value={role}>
      {role}
    </option>
  ))
}
