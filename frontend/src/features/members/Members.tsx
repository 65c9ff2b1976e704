import { useQuery } from '@tanstack/react-query'

import { errorText } from '~/api/errors'
import type { SessionUser } from '~/api/types'
import { FirstPerson } from '~/features/session/FirstPerson'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { Loading, Notice } from '~/ui/Notice'

import type { MemberAsk } from './ask'
import { decideRefusal } from './can'
import { MemberTable } from './MemberTable'
import { membersQuery } from './queries'

type Props = { user: SessionUser; orgId: string; onAsk: (ask: MemberAsk) => void }

/** The members of an organisation, with what may be done with each. */
export function Members({ user, orgId, onAsk }: Props) {
  const { data, error } = useQuery(membersQuery(orgId))
  return (
    <Card
      title="Members"
      note={decideRefusal(user) !== null && 'Admins and owners decide on members.'}
      actions={
        <Button
          variant="primary"
          disabledReason={decideRefusal(user)}
          onClick={() => {
            onAsk({ what: 'add' })
          }}
        >
          Add member
        </Button>
      }
    >
      {error && <Notice tone="bad">{errorText(error)}</Notice>}
      {data ? <MemberTable user={user} members={data.members} onAsk={onAsk} /> : !error && <Loading what="members" />}
      {data?.members.length === 0 && (
        <Notice>
          <FirstPerson />
        </Notice>
      )}
    </Card>
  )
}
