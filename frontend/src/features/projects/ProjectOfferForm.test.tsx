import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import type { ReactNode } from 'react'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import { expectAccessible } from '~/test-accessible'
import { ToastProvider } from '~/ui/Toast'

import { ProjectAcceptForm } from './ProjectAcceptForm'
import { ProjectOfferForm } from './ProjectOfferForm'

const navigate = vi.fn()
vi.mock('@tanstack/react-router', () => ({ useNavigate: () => navigate }))
vi.mock('~/api/client', () => ({
  client: { POST: vi.fn(), PUT: vi.fn() },
  unwrap: (answer: unknown) => answer,
}))
const OFFER = '12345678-1234-4234-8234-123456789abc'

beforeEach(() => {
  navigate.mockReset()
  vi.mocked(client.POST)
    .mockReset()
    .mockResolvedValue({ id: OFFER, project_id: 'p-1' } as never)
  vi.mocked(client.PUT)
    .mockReset()
    .mockResolvedValue(undefined as never)
})
afterEach(cleanup)

function show(form: ReactNode) {
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ToastProvider>{form}</ToastProvider>
    </QueryClientProvider>,
  )
  return userEvent.setup()
}

it('says what goes with a project before it is offered, and shows the code once it is', async () => {
  const user = show(<ProjectOfferForm project={{ id: 'p-1', name: 'shop' }} onClose={vi.fn()} />)
  expect(screen.getByRole('dialog', { name: 'Transfer shop?' })).toHaveTextContent('all branches, snapshots and data')
  await expectAccessible()
  await user.selectOptions(screen.getByLabelText('The offer lasts'), 'an hour')
  await user.click(screen.getByRole('button', { name: 'Make the offer' }))
  expect(await screen.findByText(`p-1/${OFFER}`)).toBeInTheDocument()
  expect(client.POST).toHaveBeenCalledWith(expect.anything(), {
    params: { path: { project_id: 'p-1' } },
    body: { ttl_seconds: 3600 },
  })
})

it('takes a code as it was shown, and no other', async () => {
  const user = show(<ProjectAcceptForm onClose={vi.fn()} />)
  const field = screen.getByLabelText('Code of the offer')
  await user.type(field, 'p-1/nonsense')
  expect(await screen.findByRole('alert')).toHaveTextContent('PROJECT/OFFER')
  await user.click(screen.getByRole('button', { name: 'Accept' }))
  expect(client.PUT).not.toHaveBeenCalled()
  await user.clear(field)
  await user.type(field, ` p-1/${OFFER} `)
  await user.click(screen.getByRole('button', { name: 'Accept' }))
  await vi.waitFor(() => {
    expect(navigate).toHaveBeenCalledWith({ to: '/projects/$projectId', params: { projectId: 'p-1' } })
  })
  expect(client.PUT).toHaveBeenCalledWith(expect.anything(), {
    params: { path: { offered_project_id: 'p-1', request_id: OFFER } },
    body: {},
  })
})
