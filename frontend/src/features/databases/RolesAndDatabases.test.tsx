import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen, waitFor } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import type { ReactNode } from 'react'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import type { BranchDatabase, Role } from '~/api/types'
import { expectAccessible } from '~/test-accessible'
import { ToastProvider } from '~/ui/Toast'

import type { DatabaseAsk } from './ask'
import { DatabaseDialogs } from './DatabaseDialogs'
import { RolesAndDatabases } from './RolesAndDatabases'

vi.mock('~/api/client', () => ({
  client: { GET: vi.fn(), POST: vi.fn(), PATCH: vi.fn(), DELETE: vi.fn() },
  unwrap: (answer: unknown) => answer,
}))
const at = '2026-01-02T03:04:05Z'

beforeEach(() => {
  vi.mocked(client.GET).mockImplementation(((path: string) =>
    Promise.resolve(path.endsWith('/roles') ? { roles } : { databases: [database] })) as never)
  for (const method of [client.POST, client.PATCH, client.DELETE]) vi.mocked(method).mockReset()
})
afterEach(cleanup)

function show(what: ReactNode) {
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ToastProvider>{what}</ToastProvider>
    </QueryClientProvider>,
  )
  return userEvent.setup()
}

const place = { projectId: 'p', branchId: 'br-1' }
const roles = ['app_owner', 'reader'].map((name) => ({ name, updated_at: at }) as Role)
const database = { name: 'appdb', owner_name: 'app_owner', updated_at: at } as BranchDatabase

function ask(what: DatabaseAsk) {
  const onClose = vi.fn()
  return { onClose, user: show(<DatabaseDialogs place={place} ask={what} roles={roles} onClose={onClose} />) }
}

it('lists roles and databases, and keeps the owner of a database', async () => {
  show(<RolesAndDatabases {...place} />)
  expect(await screen.findByRole('button', { name: 'Delete role app_owner' })).toBeDisabled()
  expect(screen.getByRole('button', { name: 'Delete role reader' })).toBeEnabled()
  expect(screen.getByRole('button', { name: 'Delete database appdb' })).toBeEnabled()
  await expectAccessible()
})

it('shows a new role’s password once, when the role is made', async () => {
  vi.mocked(client.POST).mockResolvedValue({ role: { name: 'writer', password: 'of-the-test' } } as never)
  const { user, onClose } = ask({ what: 'create-role' })
  await user.type(screen.getByLabelText('Name'), 'writer')
  await expectAccessible()
  await user.click(screen.getByRole('button', { name: 'Create role' }))
  expect(await screen.findByText('of-the-test')).toBeInTheDocument()
  expect(onClose).not.toHaveBeenCalled()
  await user.click(screen.getByRole('button', { name: 'Done' }))
  expect(onClose).toHaveBeenCalledOnce()
})

it('deletes a role once its name is typed', async () => {
  vi.mocked(client.DELETE).mockResolvedValue({ operations: [] } as never)
  const { user } = ask({ what: 'delete-role', role: { name: 'reader' } as Role })
  const gone = screen.getByRole('button', { name: 'Delete for good' })
  expect(gone).toBeDisabled()
  await user.type(screen.getByLabelText('Type reader to confirm'), 'reader')
  await user.click(gone)
  await waitFor(() => {
    expect(client.DELETE).toHaveBeenCalledWith(expect.stringContaining('{role_name}'), {
      params: { path: { project_id: 'p', branch_id: 'br-1', role_name: 'reader' } },
    })
  })
})

it('gives a database another owner', async () => {
  vi.mocked(client.PATCH).mockResolvedValue({ operations: [] } as never)
  const { user } = ask({ what: 'change-owner', database })
  const button = screen.getByRole('button', { name: 'Change owner' })
  expect(button).toBeDisabled()
  await user.selectOptions(screen.getByLabelText('Owner'), 'reader')
  await user.click(button)
  await waitFor(() => {
    expect(client.PATCH).toHaveBeenCalledWith(expect.anything(), {
      params: { path: { project_id: 'p', branch_id: 'br-1', database_name: 'appdb' } },
      body: { database: { owner_name: 'reader' } },
    })
  })
})
