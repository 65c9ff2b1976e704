import type { MemberRole } from '~/api/types'
import { Badge } from '~/ui/Badge'

export function RoleBadge({ role }: { role: MemberRole }) {
  return <Badge tone={role === 'owner' ? 'accent' : 'neutral'}>{role}</Badge>
}
