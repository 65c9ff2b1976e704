import type { MemberRole } from '~/api/types'
import { ROLES } from '~/features/session/access'
import { Badge } from '~/ui/Badge'
import { Card } from '~/ui/Card'

import { ROLE_TEXT } from './role-text'

/** What the roles are, the least first. `own`: that of who is signed in. */
export function RoleGuide({ own }: { own: MemberRole | null }) {
  return (
    <Card title="What each role may do" note="Each may do all that the one before it may.">
      <dl className="grid gap-4 sm:grid-cols-2 lg:grid-cols-4">
        {ROLES.map((role) => (
          <div key={role} className="min-w-0">
            <dt className="flex items-center gap-2 text-sm font-medium capitalize">
              {role}
              {role === own && (
                <span className="normal-case">
                  <Badge tone="accent">yours</Badge>
                </span>
              )}
            </dt>
            <dd className="mt-1 text-xs text-muted">{ROLE_TEXT[role]}</dd>
          </div>
        ))}
      </dl>
    </Card>
  )
}
