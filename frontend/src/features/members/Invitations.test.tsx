import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import type * as Router from '@tanstack/react-router'
import { cleanup, render, screen, waitFor, within } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { useState } from 'react'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import { ApiError } from '~/api/errors'
import type { Invitation, InvitationMade, Member, MemberRole, SessionUser } from '~/api/types'
import { sessionQuery } from '~/features/session/queries'
import { expectAccessible } from '~/test-accessible'
import { ToastProvider } from '~/ui/Toast'

import type { MemberAsk } from './ask'
import { Invitations } from './Invitations'
import { MemberDialogs } from './MemberForms'

vi.mock('~/api/client', () => ({
  client: { GET: vi.fn(), POST: vi.fn(), PATCH: vi.fn(), DELETE: vi.fn() },
  unwrap: (answer: unknown) => answer,
}))
vi.mock('@tanstack/react-router', async (original) => ({
  ...(await original<typeof Router>()),
  useNavigate: () => vi.fn(() => Promise.resolve()),
}))

const PATH = '/api/v2/organizations/{org_id}/invitations'
const HOUR_MS = 3_600_000

const member = (role: MemberRole): Member => ({
  member: { id: `m-${role}`, user_id: `u-${role}`, org_id: 'o-1', role, joined_at: '2026-01-02T03:04:05Z' },
  user: { email: `${role}@example.org`, name: role, has_mfa: false },
})
const members = (['owner', 'admin', 'viewer'] as const).map(member)

const invitation = (email: string, more: Partial<Invitation> = {}): Invitation => ({
  id: `i-${email}`,
  email,
  org_id: 'o-1',
  invited_by: 'u-owner',
  invited_at: new Date(Date.now() - HOUR_MS).toISOString(),
  expires_at: new Date(Date.now() + 49 * HOUR_MS).toISOString(),
  role: 'member',
  ...more,
})
const made = (email: string): InvitationMade => ({
  ...invitation(email),
  token: `token-of-${email}`,
  link: `https://weir.example.org/accept-invitation#token-of-${email}`,
})

const signedIn = (role: MemberRole): SessionUser => ({
  id: `u-${role}`,
  name: `${role}@example.org`,
  email: `${role}@example.org`,
  operator: false,
  organization_id: 'o-1',
  role,
  person: { name: '', has_password: true, second_factor: false },
  project_id: null,
  read_only: false,
})

let open: Invitation[]

beforeEach(() => {
  open = [invitation('new@example.org')]
  vi.mocked(client.GET)
    .mockReset()
    .mockImplementation(((path: string) => {
      if (path.endsWith('/session')) return Promise.resolve({ user: signedIn('admin') })
      return Promise.resolve(path.endsWith('/invitations') ? { invitations: open } : { members })
    }) as never)
  for (const method of [client.POST, client.PATCH, client.DELETE]) {
    vi.mocked(method).mockReset()
    vi.mocked(method).mockResolvedValue({} as never)
  }
})
afterEach(cleanup)

/** The card with its dialogs, as the page has them. */
function Page({ role }: { role: MemberRole }) {
  const [ask, setAsk] = useState<MemberAsk | null>(null)
  const close = () => {
    setAsk(null)
  }
  return (
    <main tabIndex={-1}>
      <Invitations user={signedIn(role)} orgId="o-1" onAsk={setAsk} />
      {ask && <MemberDialogs orgId="o-1" orgName="shop" ask={ask} onClose={close} />}
    </main>
  )
}

function show(role: MemberRole) {
  const queryClient = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity, retry: false } } })
  queryClient.setQueryData(sessionQuery.queryKey, { user: signedIn(role) })
  render(
    <QueryClientProvider client={queryClient}>
      <ToastProvider>
        <Page role={role} />
      </ToastProvider>
    </QueryClientProvider>,
  )
  return userEvent.setup()
}

const row = async (email: string) => (await screen.findByText(email)).closest('tr') as HTMLElement
const inviteButton = () => screen.getByRole('button', { name: 'Invite people', hidden: true })

describe('who is invited', () => {
  it.each(['viewer', 'member'] as const)('is not asked of the API for a %s, who is told why', async (role) => {
    show(role)
    expect(inviteButton()).toBeDisabled()
    expect(inviteButton()).toHaveAttribute('title', expect.stringContaining('This is for an admin'))
    expect(screen.getByText(/^Admins and owners invite/)).toBeInTheDocument()
    expect(screen.queryByRole('status')).toBeNull()
    expect(client.GET).not.toHaveBeenCalledWith(PATH, expect.anything())
    await expectAccessible()
  })

  it('is listed with role, inviter and end', async () => {
    open = [
      invitation('new@example.org'),
      invitation('by-key@example.org', { invited_by: 'o-1', role: 'viewer' }),
      invitation('late@example.org', { expires_at: new Date(Date.now() - 1).toISOString() }),
    ]
    show('owner')
    const first = await row('new@example.org')
    expect(first).toHaveTextContent('member')
    expect(first).toHaveTextContent('by owner@example.org')
    expect(first).toHaveTextContent(/in 2 d\d+ \w+ \d{4}/)
    expect(await row('by-key@example.org')).toHaveTextContent('by an API key')
    expect(await row('late@example.org')).toHaveTextContent('expired')
    await expectAccessible()
  })

  it('says of a link that its inviter may not stand for it any more', async () => {
    open = [
      invitation('orphan@example.org', { invited_by: 'u-gone' }),
      invitation('lowered@example.org', { invited_by: 'u-viewer' }),
      invitation('high@example.org', { invited_by: 'u-admin', role: 'owner' }),
      invitation('good@example.org', { invited_by: 'u-admin', role: 'admin' }),
    ]
    show('owner')
    expect(await row('orphan@example.org')).toHaveTextContent('is no member any more, so the link is refused')
    expect(await row('lowered@example.org')).toHaveTextContent('is viewer now and may not invite as member')
    expect(await row('high@example.org')).toHaveTextContent('is admin now and may not invite as owner')
    expect(await row('good@example.org')).not.toHaveTextContent('refused')
  })

  it('may be nobody, and may not be known', async () => {
    open = []
    show('admin')
    expect(screen.getByRole('status')).toHaveTextContent('Loading invitations')
    expect(await screen.findByText('Nobody is invited who has not come yet.')).toBeInTheDocument()
    cleanup()

    vi.mocked(client.GET).mockRejectedValue(new ApiError(503, 'UNAVAILABLE', 'the database is away', 'r-1'))
    show('admin')
    expect(await screen.findByRole('alert')).toHaveTextContent('the database is away (request r-1)')
    expect(screen.queryByText(/Loading/)).toBeNull()
  })
})

describe('inviting', () => {
  async function fill(role: MemberRole, emails: string) {
    const user = show(role)
    await row('new@example.org')
    await user.click(inviteButton())
    await user.type(screen.getByLabelText('Emails'), emails)
    return user
  }

  it('makes links for several people, shows each once, and is closed by its button alone', async () => {
    vi.mocked(client.POST).mockResolvedValue({ invitations: [made('a@x.org'), made('b@x.org')] } as never)
    const user = await fill('admin', ' A@x.org,{enter}b@x.org; a@x.org ')
    const role = screen.getByLabelText('Role')
    expect(within(role).queryByRole('option', { name: 'owner' })).toBeNull()
    await user.selectOptions(role, 'viewer')
    expect(role).toHaveAccessibleDescription(expect.stringContaining('Sees everything but passwords'))
    await expectAccessible()
    await user.click(screen.getByRole('button', { name: 'Make 2 links' }))

    const links = await screen.findByRole('list', { name: 'Links' })
    expect(client.POST).toHaveBeenCalledExactlyOnceWith(PATH, {
      params: { path: { org_id: 'o-1' } },
      body: {
        invitations: [
          { email: 'a@x.org', role: 'viewer' },
          { email: 'b@x.org', role: 'viewer' },
        ],
      },
    })
    expect(links).toHaveTextContent('https://weir.example.org/accept-invitation#token-of-a@x.org')
    expect(screen.getByRole('dialog')).toHaveAccessibleDescription(
      /Weir sends no mail, and does not show a link again/,
    )
    await expectAccessible()

    await user.click(screen.getByRole('button', { name: 'Copy link for b@x.org' }))
    expect(await screen.findByRole('button', { name: 'link for b@x.org copied' })).toBeInTheDocument()
    expect(await navigator.clipboard.readText()).toBe(made('b@x.org').link)

    await user.keyboard('{Escape}')
    expect(links).toBeInTheDocument()
    await user.click(screen.getByRole('button', { name: 'I have the links' }))
    await waitFor(() => {
      expect(inviteButton()).toHaveFocus()
    })
    expect(document.body).not.toHaveTextContent('token-of-a@x.org')
    // The list was asked for again.
    expect((vi.mocked(client.GET).mock.calls as unknown[][]).filter(([path]) => path === PATH)).toHaveLength(2)
  })

  it('shows the links although the list does not come', async () => {
    vi.mocked(client.POST).mockResolvedValue({ invitations: [made('a@x.org')] } as never)
    const user = await fill('owner', 'a@x.org')
    vi.mocked(client.GET).mockImplementation((() => new Promise(() => undefined)) as never)
    await user.click(screen.getByRole('button', { name: 'Make link' }))
    expect(await screen.findByLabelText('link for a@x.org')).toHaveTextContent(made('a@x.org').link)
  })

  it('says that the browser did not copy', async () => {
    vi.mocked(client.POST).mockResolvedValue({ invitations: [made('a@x.org')] } as never)
    const user = await fill('owner', 'a@x.org')
    await user.click(screen.getByRole('button', { name: 'Make link' }))
    const copy = await screen.findByRole('button', { name: 'Copy link for a@x.org' })
    vi.spyOn(navigator.clipboard, 'writeText').mockRejectedValue(new DOMException('no', 'NotAllowedError'))
    await user.click(copy)
    expect(await screen.findByRole('button', { name: /link for a@x.org is not copied/ })).toBeInTheDocument()
  })

  it('stays open while it asks: only this answer has the links', async () => {
    let answer: (links: unknown) => void = () => undefined
    vi.mocked(client.POST).mockReturnValue(new Promise((resolve) => (answer = resolve)) as never)
    const user = await fill('owner', 'a@x.org')
    await user.click(screen.getByRole('button', { name: 'Make link' }))
    await user.keyboard('{Escape}')
    expect(screen.getByRole('button', { name: 'Cancel' })).toBeDisabled()
    answer({ invitations: [made('a@x.org')] })
    expect(await screen.findByLabelText('link for a@x.org')).toBeInTheDocument()
  })

  it.each([
    ['nobody', ' ', 'Give an email such as name@example.org.'],
    ['what is no email', 'a@x.org nonsense', 'Not an email: nonsense.'],
    ['a member', 'a@x.org Viewer@example.org', 'Already a member: viewer@example.org.'],
    ['too many', Array.from({ length: 21 }, (_, n) => `p${String(n)}@x.org`).join(' '), '21 emails; at most 20'],
  ])('sends nothing for %s, and says so at the field', async (_, emails, said) => {
    const user = await fill('owner', emails)
    await user.click(screen.getByRole('button', { name: /^Make/ }))
    const field = screen.getByLabelText('Emails')
    expect(await screen.findByRole('alert')).toHaveTextContent(said)
    expect(field).toBeInvalid()
    expect(field).toHaveAccessibleDescription(expect.stringContaining(said))
    expect(client.POST).not.toHaveBeenCalled()
    await user.clear(field)
    await user.type(field, 'b@x.org')
    expect(field).toBeValid()
    await user.click(screen.getByRole('button', { name: 'Make link' }))
    expect(client.POST).toHaveBeenCalledOnce()
  })

  it('keeps what was typed when the API refuses, and says why at the email that it names', async () => {
    const why = 'a@x.org is a member already; change the role with PATCH'
    vi.mocked(client.POST).mockRejectedValueOnce(new ApiError(409, 'CONFLICT', why))
    const user = await fill('owner', 'a@x.org')
    await user.selectOptions(screen.getByLabelText('Role'), 'owner')
    await user.click(screen.getByRole('button', { name: 'Make link' }))
    expect(await screen.findByRole('alert')).toHaveTextContent(why)
    const field = screen.getByLabelText('Emails')
    expect(field).toHaveAccessibleDescription(expect.stringContaining(why))
    expect(field).toHaveValue('a@x.org')
    expect(screen.getByLabelText('Role')).toHaveValue('owner')
    await expectAccessible()
    await user.type(field, 'g')
    expect(screen.queryByRole('alert')).toBeNull()
  })

  it('says in the dialog what is of no email', async () => {
    const why = 'an organization has 200 open invitations at most; revoke some first'
    vi.mocked(client.POST).mockRejectedValueOnce(new ApiError(403, 'QUOTA_EXCEEDED', why))
    const user = await fill('owner', 'a@x.org')
    await user.click(screen.getByRole('button', { name: 'Make link' }))
    expect(within(screen.getByRole('dialog')).getByRole('alert')).toHaveTextContent(why)
    expect(screen.getByLabelText('Emails')).toBeValid()
  })

  it('warns of a link that counts no more with another one', async () => {
    await fill('owner', 'New@example.org')
    expect(screen.getByText(/^Invited before: new@example.org/)).toBeInTheDocument()
  })

  it('gives the keyboard back when it is given up', async () => {
    const user = await fill('owner', 'a@x.org')
    await user.keyboard('{Escape}')
    await waitFor(() => {
      expect(inviteButton()).toHaveFocus()
    })
    expect(client.POST).not.toHaveBeenCalled()
  })
})

describe('revoking', () => {
  const NAME = 'Revoke the invitation of new@example.org'

  it('asks first, and leaves the keyboard at the list', async () => {
    open = [invitation('new@example.org'), invitation('other@example.org')]
    const user = show('admin')
    await user.click(await screen.findByRole('button', { name: NAME }))
    await expectAccessible()
    expect(client.DELETE).not.toHaveBeenCalled()
    open = open.slice(1)
    await user.click(screen.getByRole('button', { name: 'Revoke' }))
    await waitFor(() => {
      expect(screen.queryByRole('dialog')).toBeNull()
    })
    expect(client.DELETE).toHaveBeenCalledExactlyOnceWith(`${PATH}/{invitation_id}`, {
      params: { path: { org_id: 'o-1', invitation_id: 'i-new@example.org' } },
    })
    expect(screen.queryByText('new@example.org')).toBeNull()
    await waitFor(() => {
      expect(screen.getByRole('region', { name: 'Open invitations' })).toHaveFocus()
    })
  })

  it('leaves the keyboard on the page where the last one went', async () => {
    const user = show('admin')
    await user.click(await screen.findByRole('button', { name: NAME }))
    open = []
    await user.click(screen.getByRole('button', { name: 'Revoke' }))
    expect(await screen.findByText(/^Nobody is invited/)).toBeInTheDocument()
    await waitFor(() => {
      expect(screen.getByRole('main')).toHaveFocus()
    })
  })

  it('does nothing when it is given up', async () => {
    const user = show('admin')
    const button = await screen.findByRole('button', { name: NAME })
    await user.click(button)
    await user.click(screen.getByRole('button', { name: 'Cancel' }))
    await waitFor(() => {
      expect(button).toHaveFocus()
    })
    expect(client.DELETE).not.toHaveBeenCalled()
  })

  it('says why it could not, and asks for what is so', async () => {
    vi.mocked(client.DELETE).mockRejectedValue(new ApiError(404, 'NOT_FOUND', 'there is no invitation i-1'))
    const user = show('admin')
    await user.click(await screen.findByRole('button', { name: NAME }))
    open = []
    await user.click(screen.getByRole('button', { name: 'Revoke' }))
    expect(await within(screen.getByRole('dialog')).findByRole('alert')).toHaveTextContent('there is no invitation')
    expect(await screen.findByText(/^Nobody is invited/)).toBeInTheDocument()
  })

  it('is closed to an admin for what an owner has offered', async () => {
    open = [invitation('new@example.org', { role: 'owner' })]
    show('admin')
    const button = await screen.findByRole('button', { name: NAME })
    expect(button).toBeDisabled()
    expect(button).toHaveAttribute('title', 'new@example.org is invited as owner, a greater role than yours.')
  })
})
