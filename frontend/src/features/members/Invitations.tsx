import { useQuery } from '@tanstack/react-query'

import { errorText } from '~/api/errors'
import type { SessionUser } from '~/api/types'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { Loading, Notice } from '~/ui/Notice'

import type { MemberAsk } from './ask'
import { decideRefusal } from './can'
import { InvitationTable } from './InvitationTable'
import { invitationsQuery, membersQuery } from './queries'

type Props = { user: SessionUser; orgId: string; onAsk: (ask: MemberAsk) => void }

/** The invitations of an organisation that can still be accepted; for whoever may not see them, why not. */
export function Invitations({ user, orgId, onAsk }: Props) {
  const refused = decideRefusal(user)
  return (
    <Card
      title="Invitations"
      note={
        refused === null
          ? 'Each has a link, which makes the person of that email a member, once. Weir sends no mail.'
          : 'Admins and owners invite people, and see who is invited.'
      }
      actions={
        <Button
          disabledReason={refused}
          onClick={() => {
            onAsk({ what: 'invite' })
          }}
        >
          Invite people
        </Button>
      }
    >
      {refused === null && <OpenInvitations user={user} orgId={orgId} onAsk={onAsk} />}
    </Card>
  )
}

function OpenInvitations({ user, orgId, onAsk }: Props) {
  const open = useQuery(invitationsQuery(orgId))
  const members = useQuery(membersQuery(orgId))
  const error = open.error ?? members.error
  return (
    <>
      {error && <Notice tone="bad">{errorText(error)}</Notice>}
      {open.data && members.data ? (
        <InvitationTable
          user={user}
          invitations={open.data.invitations}
          members={members.data.members}
          onAsk={onAsk}
        />
      ) : (
        !error && <Loading what="invitations" />
      )}
    </>
  )
}
