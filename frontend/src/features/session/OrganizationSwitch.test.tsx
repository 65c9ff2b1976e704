import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import type * as Router from '@tanstack/react-router'
import { cleanup, render, screen, waitFor } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import { expectAccessible } from '~/test-accessible'
import { ToastProvider } from '~/ui/Toast'

import { OrganizationSwitch } from './OrganizationSwitch'

vi.mock('~/api/client', () => ({
  client: { GET: vi.fn(), PUT: vi.fn() },
  unwrap: (answer: unknown) => answer,
}))
const { navigate } = vi.hoisted(() => ({ navigate: vi.fn(() => Promise.resolve()) }))
vi.mock('@tanstack/react-router', async (original) => ({
  ...(await original<typeof Router>()),
  useNavigate: () => navigate,
}))

const organizations = [
  { id: 'o-1', name: 'shop' },
  { id: 'o-2', name: 'lab' },
]
let acting = 'o-1'

/** An API whose session acts in `acting`. */
function answer(of: typeof organizations) {
  vi.mocked(client.GET).mockImplementation(((path: string) =>
    Promise.resolve(
      path.endsWith('/organizations')
        ? { organizations: of }
        : { user: { organization_id: acting, role: 'owner', person: {}, project_id: null } },
    )) as never)
}

beforeEach(() => {
  acting = 'o-1'
  vi.mocked(client.PUT).mockImplementation(((_path: string, { body }: { body: { org_id: string } }) => {
    acting = body.org_id
    return Promise.resolve({})
  }) as never)
})
afterEach(cleanup)

function show() {
  const queryClient = new QueryClient()
  render(
    <QueryClientProvider client={queryClient}>
      <ToastProvider>
        <OrganizationSwitch />
      </ToastProvider>
    </QueryClientProvider>,
  )
  return queryClient
}

it('has the console act in the other organisation, with nothing left of the one before', async () => {
  answer(organizations)
  const queryClient = show()
  queryClient.setQueryData(['projects', 'search', ''], { projects: ['of shop'] })
  const select = await screen.findByLabelText('Organisation')
  await expectAccessible()
  await userEvent.setup().selectOptions(select, 'lab')
  await waitFor(() => {
    expect(queryClient.getQueryData(['projects', 'search', ''])).toBeUndefined()
  })
  expect(client.PUT).toHaveBeenCalledWith('/api/v2/auth/session/organization', { body: { org_id: 'o-2' } })
  expect(navigate).toHaveBeenCalledWith({ to: '/projects' })
  await waitFor(() => {
    expect(screen.getByLabelText('Organisation')).toHaveValue('o-2')
  })
})

it('is not there for who belongs to one organisation alone', async () => {
  answer(organizations.slice(0, 1))
  const queryClient = show()
  await waitFor(() => {
    expect(queryClient.getQueryData(['session', 'organizations'])).toBeDefined()
  })
  expect(screen.queryByLabelText('Organisation')).toBeNull()
})
