import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, fireEvent, render, screen, waitFor } from '@testing-library/react'
import type { ReactNode } from 'react'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'

const push = vi.hoisted(() => vi.fn())
vi.mock('@tanstack/react-router', () => ({
  useRouter: () => ({ history: { push } }),
  Link: ({ children }: { children: ReactNode }) => <a href="/login">{children}</a>,
}))
vi.mock('~/api/client', () => ({
  client: { GET: vi.fn(), POST: vi.fn() },
  unwrap: (answer: unknown) => answer,
}))

beforeEach(() => {
  sessionStorage.clear()
  vi.mocked(client.POST).mockReset().mockResolvedValue({})
})
afterEach(() => {
  cleanup()
  window.location.hash = ''
})

const { AcceptInvitationPage } = await import('./AcceptInvitationPage')

function open(hash: string, email?: string) {
  window.location.hash = hash
  const answer = email ? Promise.resolve({ user: { email } }) : Promise.reject(new Error('nobody is signed in'))
  vi.mocked(client.GET).mockReturnValue(answer as never)
  render(
    <QueryClientProvider client={new QueryClient()}>
      <AcceptInvitationPage />
    </QueryClientProvider>,
  )
}

it('makes an account for who is not signed in', async () => {
  open('#a-token')
  const button = await screen.findByRole('button', { name: 'Make an account and accept' })
  await waitFor(() => {
    expect(button).toBeEnabled()
  })
  fireEvent.change(screen.getByLabelText('Name'), { target: { value: ' Somebody ' } })
  fireEvent.change(screen.getByLabelText('Password'), { target: { value: 'correct horse battery' } })
  fireEvent.click(button)
  await waitFor(() => {
    expect(push).toHaveBeenCalledWith('/projects')
  })
  expect(client.POST).toHaveBeenCalledWith('/api/v2/invitations/accept', {
    body: { token: 'a-token', name: 'Somebody', password: 'correct horse battery' },
  })
  expect(sessionStorage.length).toBe(0)
})

it('accepts as who is signed in, with the link that was opened before signing in', async () => {
  open('#a-token')
  expect(await screen.findByText('sign in')).toBeInTheDocument()
  cleanup()
  open('', 'name@example.org')
  expect(await screen.findByText(/signed in as name@example.org/)).toBeInTheDocument()
  expect(screen.queryByLabelText('Password')).toBeNull()
  fireEvent.click(screen.getByRole('button', { name: 'Accept' }))
  await waitFor(() => {
    expect(client.POST).toHaveBeenCalledWith('/api/v2/invitations/accept', { body: { token: 'a-token' } })
  })
})

it('says why an invitation is not taken, and keeps it', async () => {
  vi.mocked(client.POST).mockRejectedValue(new Error('this invitation has expired'))
  open('#a-token', 'name@example.org')
  fireEvent.click(await screen.findByRole('button', { name: 'Accept' }))
  expect(await screen.findByRole('alert')).toHaveTextContent('this invitation has expired')
  expect(sessionStorage.length).toBe(1)
})

it('says so where there is no invitation', () => {
  open('')
  expect(screen.getByText(/names no invitation/)).toBeInTheDocument()
})
