import type { SessionUser } from '~/api/types'
import { personRefusal } from '~/features/session/access'
import { Badge } from '~/ui/Badge'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'

import type { AccountAsk } from './ask'

const NO_PASSWORD = 'You sign in by an identity provider, which keeps the password and the second factor.'

/** What a person signs in with, and how that is changed. */
export function SecurityCard({ user, onAsk }: { user: SessionUser; onAsk: (ask: AccountAsk) => void }) {
  const closed = personRefusal(user) ?? (user.person?.has_password ? null : NO_PASSWORD)
  const second = user.person?.second_factor ?? false
  return (
    <Card title="Signing in" note={closed ?? 'Each change asks for your password again.'}>
      <ul className="divide-y divide-line">
        <li className="flex flex-wrap items-center justify-between gap-2 pb-3">
          <div className="min-w-0">
            <h3 className="text-sm font-medium">Password</h3>
            <p className="text-xs text-muted">A new one ends all your other sessions.</p>
          </div>
          <Button
            disabledReason={closed}
            onClick={() => {
              onAsk('password')
            }}
          >
            Change password
          </Button>
        </li>
        <li className="flex flex-wrap items-center justify-between gap-2 pt-3">
          <div className="min-w-0 flex-1 basis-60">
            <h3 className="flex flex-wrap items-center gap-2 text-sm font-medium">
              Second factor
              <Badge tone={second ? 'good' : 'neutral'}>{second ? 'on' : 'off'}</Badge>
            </h3>
            <p className="text-xs text-muted">
              {second
                ? 'Signing in asks for a code of your authenticator. For new recovery codes, end it and set it up again.'
                : 'A code of an authenticator (TOTP), asked for beside the password.'}
            </p>
          </div>
          {second ? (
            <Button
              variant="danger"
              disabledReason={closed}
              onClick={() => {
                onAsk('end')
              }}
            >
              End second factor
            </Button>
          ) : (
            <Button
              disabledReason={closed}
              onClick={() => {
                onAsk('set-up')
              }}
            >
              Set up second factor
            </Button>
          )}
        </li>
      </ul>
    </Card>
  )
}
