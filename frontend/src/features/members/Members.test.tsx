import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import type * as Router from '@tanstack/react-router'
import { cleanup, render, screen, waitFor } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import type { ReactNode } from 'react'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import type { Member, MemberRole, SessionUser } from '~/api/types'
import { sessionQuery } from '~/features/session/queries'
import { expectAccessible } from '~/test-accessible'
import { ToastProvider } from '~/ui/Toast'

import { MemberDialogs } from './MemberForms'
import { Members } from './Members'
import { RoleGuide } from './RoleGuide'

vi.mock('~/api/client', () => ({
  client: { GET: vi.fn(), POST: vi.fn(), PATCH: vi.fn(), DELETE: vi.fn() },
  unwrap: (answer: unknown) => answer,
}))
vi.mock('@tanstack/react-router', async (original) => ({
  ...(await original<typeof Router>()),
  useNavigate: () => vi.fn(() => Promise.resolve()),
}))

const at = '2026-01-02T03:04:05Z'
const member = (role: MemberRole, id: string = role): Member => ({
  member: { id: `m-${id}`, user_id: `u-${id}`, org_id: 'o-1', role, joined_at: at },
  user: { email: `${id}@example.org`, name: `Name of ${id}`, has_mfa: role === 'owner' },
})
const all = [member('owner'), member('admin'), member('viewer')]

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

beforeEach(() => {
  vi.mocked(client.GET).mockImplementation(((path: string) =>
    Promise.resolve(path.endsWith('/session') ? { user: signedIn('admin') } : { members: all })) as never)
  for (const method of [client.POST, client.PATCH, client.DELETE]) {
    vi.mocked(method).mockReset()
    vi.mocked(method).mockResolvedValue({} as never)
  }
})
afterEach(cleanup)

function show(role: MemberRole, what: ReactNode) {
  const queryClient = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity } } })
  queryClient.setQueryData(sessionQuery.queryKey, { user: signedIn(role) })
  render(
    <QueryClientProvider client={queryClient}>
      <ToastProvider>{what}</ToastProvider>
    </QueryClientProvider>,
  )
  return userEvent.setup()
}

const list = (role: MemberRole, onAsk = vi.fn()) =>
  show(role, <Members user={signedIn(role)} orgId="o-1" onAsk={onAsk} />)

it('shows a viewer who is in, and why they decide nothing', async () => {
  list('viewer')
  expect(await screen.findByText('admin@example.org')).toBeInTheDocument()
  expect(screen.getByText('you')).toBeInTheDocument()
  for (const name of ['Add member', 'Change the role of admin@example.org', 'Remove viewer@example.org']) {
    const button = screen.getByRole('button', { name })
    expect(button).toBeDisabled()
    expect(button).toHaveAttribute('title', 'You are a viewer here. This is for an admin or a greater role.')
  }
  await expectAccessible()
})

it('lets an admin decide on all but owners', async () => {
  const onAsk = vi.fn()
  const user = list('admin', onAsk)
  expect(await screen.findByRole('button', { name: 'Remove owner@example.org' })).toBeDisabled()
  await user.click(screen.getByRole('button', { name: 'Change the role of viewer@example.org' }))
  expect(onAsk).toHaveBeenCalledWith({ what: 'role', member: all[2] })
})

it('says how the first person is made where there is none', async () => {
  vi.mocked(client.GET).mockResolvedValue({ members: [] } as never)
  list('owner')
  expect(await screen.findByText('weir up --first-user EMAIL')).toBeInTheDocument()
})

const dialogs = (role: MemberRole, ask: Parameters<typeof MemberDialogs>[0]['ask'], onClose = vi.fn()) =>
  show(role, <MemberDialogs orgId="o-1" orgName="shop" ask={ask} onClose={onClose} />)

it('gives a role that is not above one’s own, and says what it may', async () => {
  const onClose = vi.fn()
  const user = dialogs('admin', { what: 'role', member: member('viewer') }, onClose)
  const select = screen.getByLabelText('Role')
  expect(select).not.toHaveTextContent('owner')
  expect(screen.getByRole('button', { name: 'Change role' })).toBeDisabled()
  await user.selectOptions(select, 'member')
  expect(select).toHaveAccessibleDescription(expect.stringContaining('Works in projects'))
  await expectAccessible()
  await user.click(screen.getByRole('button', { name: 'Change role' }))
  await waitFor(() => {
    expect(onClose).toHaveBeenCalledOnce()
  })
  expect(client.PATCH).toHaveBeenCalledWith('/api/v2/organizations/{org_id}/members/{member_id}', {
    params: { path: { org_id: 'o-1', member_id: 'm-viewer' } },
    body: { role: 'member' },
  })
})

it('warns who changes their own role', async () => {
  const user = dialogs('admin', { what: 'role', member: member('admin') })
  await user.selectOptions(screen.getByLabelText('Role'), 'viewer')
  expect(screen.getByText(/your own role/)).toBeInTheDocument()
})

it('adds a person by email', async () => {
  const user = dialogs('owner', { what: 'add' })
  await user.type(screen.getByLabelText('Email'), 'new@example.org')
  await user.selectOptions(screen.getByLabelText('Role'), 'owner')
  await user.click(screen.getByRole('button', { name: 'Add member' }))
  await waitFor(() => {
    expect(client.POST).toHaveBeenCalledWith('/api/v2/organizations/{org_id}/members', {
      params: { path: { org_id: 'o-1' } },
      body: { email: 'new@example.org', role: 'owner' },
    })
  })
})

it('removes nobody, and leaves nothing, unless the name is typed', async () => {
  const user = dialogs('owner', { what: 'remove', member: member('viewer') })
  expect(screen.getByRole('button', { name: 'Remove' })).toBeDisabled()
  await user.type(screen.getByLabelText('Type viewer@example.org to confirm'), 'viewer@example.org')
  await user.click(screen.getByRole('button', { name: 'Remove' }))
  expect(client.DELETE).toHaveBeenCalledOnce()
  cleanup()

  const other = dialogs('viewer', { what: 'leave' })
  await other.type(screen.getByLabelText('Type shop to confirm'), 'shop')
  await other.click(screen.getByRole('button', { name: 'Leave' }))
  expect(client.POST).toHaveBeenCalledWith('/api/v2/organizations/{org_id}/leave', {
    params: { path: { org_id: 'o-1' } },
  })
})

it('says what each role may do, and which is one’s own', () => {
  render(<RoleGuide own="member" />)
  expect(screen.getAllByRole('term')).toHaveLength(4)
  expect(screen.getAllByRole('term')[1]).toHaveTextContent('memberyours')
})
