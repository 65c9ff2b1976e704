import { useStore } from '@tanstack/react-form'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'

import { errorText } from '~/api/errors'
import type { Invitation, InvitationMade, MemberRole } from '~/api/types'
import { useSessionUser } from '~/features/session/use-session'
import { time } from '~/lib/format'
import { submits, useAppForm, wrong } from '~/shared/form'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { CopyText } from '~/ui/CopyText'
import { Dialog } from '~/ui/Dialog'
import { Notice } from '~/ui/Notice'

import { givenRoles } from './can'
import { emailsError, emailsOf, invitedAlready, MOST_AT_ONCE } from './invited'
import { createInvitations, invitationsKey, invitationsQuery, membersQuery, revokeInvitation } from './queries'
import { ROLE_TEXT } from './role-text'
import { RoleOptions } from './RoleOptions'

type Asked = { email: string; role: MemberRole }[]

/** Invites people, then shows their links. One dialog all along: it cannot be closed while only it will have the links. */
export function Invite({ orgId, onClose }: { orgId: string; onClose: () => void }) {
  const queryClient = useQueryClient()
  const [made, setMade] = useState<InvitationMade[] | null>(null)
  const [refused, setRefused] = useState<string | null>(null)
  const create = useAction((asked: Asked) => createInvitations(orgId, asked), {
    done: 'Invited',
    // The links are shown at once; the list may take its time.
    invalidate: [],
    onDone: (links) => {
      setMade(links)
      void queryClient.invalidateQueries({ queryKey: invitationsKey })
    },
    takes: (error) => {
      setRefused(errorText(error))
      return true
    },
  })
  const stays = made !== null || create.isPending
  return (
    <Dialog
      onClose={stays ? () => undefined : onClose}
      title={made ? (made.length === 1 ? 'Hand on the link' : 'Hand on the links') : 'Invite people'}
      description={
        made
          ? 'Weir sends no mail, and does not show a link again. Give each to its person by a way that nobody else reads: whoever has it can make the account of that email.'
          : 'Each email gets a link, which makes the person a member. You hand it on: Weir sends no mail.'
      }
    >
      {made ? (
        <Links made={made} onClose={onClose} />
      ) : (
        <InviteForm
          orgId={orgId}
          busy={create.isPending}
          refused={refused}
          onChange={() => {
            setRefused(null)
          }}
          onInvite={(asked) => {
            setRefused(null)
            create.mutate(asked)
          }}
          onClose={onClose}
        />
      )}
    </Dialog>
  )
}

type FormProps = {
  orgId: string
  busy: boolean
  /** What the API said of what was sent. */
  refused: string | null
  onChange: () => void
  onInvite: (asked: Asked) => void
  onClose: () => void
}

function InviteForm({ orgId, busy, refused, onChange, onInvite, onClose }: FormProps) {
  const roles = givenRoles(useSessionUser())
  const members = useQuery(membersQuery(orgId)).data?.members ?? []
  const open = useQuery(invitationsQuery(orgId)).data?.invitations ?? []
  const form = useAppForm({
    defaultValues: { emails: '', role: 'member' as string },
    validators: { onSubmit: ({ value }) => wrong({ emails: emailsError(emailsOf(value.emails), members) }) },
    listeners: { onChange },
    onSubmit: ({ value }) => {
      onInvite(emailsOf(value.emails).map((email) => ({ email, role: value.role as MemberRole })))
    },
  })
  const { emails: text, role } = useStore(form.store, (state) => state.values)
  const emails = emailsOf(text)
  const again = invitedAlready(emails, open)
  const ofEmail = refused !== null && emails.some((email) => refused.includes(email))
  return (
    <form onSubmit={submits(form)} noValidate>
      <form.AppField name="emails">
        {(field) => (
          <field.TextArea
            label="Emails"
            rows={4}
            required
            autoComplete="off"
            spellCheck={false}
            hint={`One or several, at most ${String(MOST_AT_ONCE)}: one a line, or separated by commas.`}
            refused={ofEmail ? refused : null}
          />
        )}
      </form.AppField>
      <form.AppField name="role">
        {(field) => (
          <field.Select label="Role" hint={ROLE_TEXT[role as MemberRole]}>
            <RoleOptions roles={roles} />
          </field.Select>
        )}
      </form.AppField>
      <div className="mb-3 grid gap-2 empty:hidden">
        {again.length > 0 && (
          <Notice tone="warn">Invited before: {again.join(', ')}. The earlier link counts no more then.</Notice>
        )}
        {refused !== null && !ofEmail && <Notice tone="bad">{refused}</Notice>}
      </div>
      <div className="flex flex-wrap justify-end gap-2">
        <Button disabled={busy} onClick={onClose}>
          Cancel
        </Button>
        <Button variant="primary" type="submit" busy={busy}>
          {emails.length > 1 ? `Make ${String(emails.length)} links` : 'Make link'}
        </Button>
      </div>
    </form>
  )
}

/** Closed by its button alone: no later answer has the links. */
function Links({ made, onClose }: { made: InvitationMade[]; onClose: () => void }) {
  return (
    <>
      <ul aria-label="Links" className="mb-4 grid gap-3">
        {made.map(({ id, email, role, link, expires_at: expires }) => (
          <li key={id} className="min-w-0">
            <p className="mb-1 text-sm">
              <span className="font-medium break-all">{email}</span>
              <span className="text-muted">
                {' '}
                as {role}, until {time(expires)}
              </span>
            </p>
            <CopyText text={link} label={`link for ${email}`} />
          </li>
        ))}
      </ul>
      <div className="flex justify-end">
        <Button variant="primary" onClick={onClose}>
          {made.length === 1 ? 'I have the link' : 'I have the links'}
        </Button>
      </div>
    </>
  )
}

/** Asks before an invitation is taken back. */
export function RevokeInvitation({ orgId, of, onClose }: { orgId: string; of: Invitation; onClose: () => void }) {
  const queryClient = useQueryClient()
  const [refused, setRefused] = useState<string | null>(null)
  const revoke = useAction(() => revokeInvitation(orgId, of.id), {
    done: `The invitation of ${of.email} is revoked`,
    invalidate: [invitationsKey],
    onDone: onClose,
    takes: (error) => {
      setRefused(errorText(error))
      // It may be that it was accepted, or revoked by somebody else.
      void queryClient.invalidateQueries({ queryKey: invitationsKey })
      void queryClient.invalidateQueries({ queryKey: membersQuery(orgId).queryKey })
      return true
    },
  })
  return (
    <Dialog
      onClose={onClose}
      title={`Revoke the invitation of ${of.email}?`}
      description="Its link opens nothing from now on. You can invite the same email again, with a new link."
    >
      {refused !== null && (
        <div className="mb-3">
          <Notice tone="bad">{refused}</Notice>
        </div>
      )}
      <div className="flex flex-wrap justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button
          variant="danger"
          busy={revoke.isPending}
          onClick={() => {
            setRefused(null)
            revoke.mutate(undefined)
          }}
        >
          Revoke
        </Button>
      </div>
    </Dialog>
  )
}
