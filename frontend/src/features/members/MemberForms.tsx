import { useStore } from '@tanstack/react-form'
import { useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'

import { longest } from '~/api/bounds'
import { zMemberAddRequest } from '~/api/generated/zod/zod.gen'
import type { Member, MemberRole } from '~/api/types'
import { sessionQuery } from '~/features/session/queries'
import { useSessionUser } from '~/features/session/use-session'
import { submits, useAppForm } from '~/shared/form'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { DeleteDialog } from '~/ui/DeleteDialog'
import { Dialog } from '~/ui/Dialog'

import type { MemberAsk } from './ask'
import { givenRoles } from './can'
import { Invite, RevokeInvitation } from './InvitationForms'
import { addMember, changeRole, leaveOrganization, membersKey, removeMember } from './queries'
import { ROLE_TEXT } from './role-text'
import { RoleOptions } from './RoleOptions'

type Props = { orgId: string; orgName: string; ask: MemberAsk; onClose: () => void }

/** The form for what was asked of an organisation's members. */
export function MemberDialogs({ orgId, orgName, ask, onClose }: Props) {
  if (ask.what === 'add') return <AddMember orgId={orgId} onClose={onClose} />
  if (ask.what === 'invite') return <Invite orgId={orgId} onClose={onClose} />
  if (ask.what === 'revoke') return <RevokeInvitation orgId={orgId} of={ask.invitation} onClose={onClose} />
  if (ask.what === 'role') return <ChangeRole orgId={orgId} of={ask.member} onClose={onClose} />
  if (ask.what === 'remove') return <RemoveMember orgId={orgId} of={ask.member} onClose={onClose} />
  return <Leave orgId={orgId} orgName={orgName} onClose={onClose} />
}

function AddMember({ orgId, onClose }: { orgId: string; onClose: () => void }) {
  const roles = givenRoles(useSessionUser())
  const add = useAction((input: { email: string; role: MemberRole }) => addMember(orgId, input), {
    done: 'Member added',
    invalidate: [membersKey],
    onDone: onClose,
  })
  const form = useAppForm({
    defaultValues: { email: '', role: 'member' as string },
    onSubmit: ({ value }) => {
      add.mutate({ email: value.email.trim(), role: value.role as MemberRole })
    },
  })
  const role = useStore(form.store, (state) => state.values.role) as MemberRole
  return (
    <Dialog
      onClose={onClose}
      title="Add a member"
      description="A person whom this installation knows. One whom it does not know is invited instead."
    >
      <form onSubmit={submits(form)}>
        <form.AppField name="email">
          {(field) => (
            <field.Text
              label="Email"
              type="email"
              autoComplete="off"
              required
              maxLength={longest(zMemberAddRequest.shape.email)}
            />
          )}
        </form.AppField>
        <form.AppField name="role">
          {(field) => (
            <field.Select label="Role" hint={ROLE_TEXT[role]}>
              <RoleOptions roles={roles} />
            </field.Select>
          )}
        </form.AppField>
        <Button variant="primary" type="submit" busy={add.isPending}>
          Add member
        </Button>
      </form>
    </Dialog>
  )
}

function ChangeRole({ orgId, of, onClose }: { orgId: string; of: Member; onClose: () => void }) {
  const user = useSessionUser()
  const change = useAction((role: MemberRole) => changeRole(orgId, of.member.id, role), {
    done: `The role of ${of.user.email} is changed`,
    // It may have been one's own.
    invalidate: [membersKey, sessionQuery.queryKey],
    onDone: onClose,
  })
  const form = useAppForm({
    defaultValues: { role: of.member.role as string },
    onSubmit: ({ value }) => {
      change.mutate(value.role as MemberRole)
    },
  })
  const role = useStore(form.store, (state) => state.values.role) as MemberRole
  const own = of.member.user_id === user.id && role !== of.member.role
  return (
    <Dialog
      onClose={onClose}
      title={`Role of ${of.user.email}`}
      description="It holds from the person’s next request on, for their API keys too."
    >
      <form onSubmit={submits(form)}>
        <form.AppField name="role">
          {(field) => (
            <field.Select label="Role" hint={ROLE_TEXT[role]}>
              <RoleOptions roles={givenRoles(user)} />
            </field.Select>
          )}
        </form.AppField>
        {own && <p className="mb-3 text-sm text-warn">This is your own role: you may not be able to take it back.</p>}
        <Button
          variant="primary"
          type="submit"
          busy={change.isPending}
          disabledReason={role === of.member.role ? `${of.user.email} is ${role} already.` : null}
        >
          Change role
        </Button>
      </form>
    </Dialog>
  )
}

function RemoveMember({ orgId, of, onClose }: { orgId: string; of: Member; onClose: () => void }) {
  const remove = useAction(() => removeMember(orgId, of.member.id), {
    done: `${of.user.email} is no member any more`,
    invalidate: [membersKey, sessionQuery.queryKey, ['api-keys']],
    onDone: onClose,
  })
  return (
    <DeleteDialog
      name={of.user.email}
      title={`Remove ${of.user.email}?`}
      description="They are out with their next request, and API keys that they made here are revoked. What they made otherwise stays."
      action="Remove"
      busy={remove.isPending}
      onDelete={() => {
        remove.mutate(undefined)
      }}
      onClose={onClose}
    />
  )
}

function Leave({ orgId, orgName, onClose }: { orgId: string; orgName: string; onClose: () => void }) {
  const navigate = useNavigate()
  const queryClient = useQueryClient()
  const leave = useAction(() => leaveOrganization(orgId), {
    done: `You have left ${orgName}`,
    invalidate: [sessionQuery.queryKey],
    onDone: () => {
      onClose()
      void navigate({ to: '/projects' }).then(() =>
        queryClient.resetQueries({ predicate: ({ queryKey }) => queryKey[0] !== sessionQuery.queryKey[0] }),
      )
    },
  })
  return (
    <DeleteDialog
      name={orgName}
      title={`Leave ${orgName}?`}
      description="You see nothing of it from now on, and API keys that you made in it are revoked. An admin can add you again."
      action="Leave"
      busy={leave.isPending}
      onDelete={() => {
        leave.mutate(undefined)
      }}
      onClose={onClose}
    />
  )
}
