import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen, waitFor, within } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import type { ReactNode } from 'react'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import { ApiError } from '~/api/errors'
import type { AuthProvider, ProviderLink, SessionUser } from '~/api/types'
import { expectAccessible } from '~/test-accessible'
import { ToastProvider } from '~/ui/Toast'

import { AccountDialogs } from './AccountDialogs'
import { LinkedProviders } from './LinkedProviders'
import { LinkForm } from './LinkForms'

vi.mock('~/api/client', () => ({
  client: { GET: vi.fn(), POST: vi.fn(), PUT: vi.fn(), DELETE: vi.fn() },
  unwrap: (answer: unknown) => answer,
}))

const provider = (id: string): AuthProvider => ({ id, name: `Example ${id}`, start_url: `/start/${id}` })
const link = (given: Partial<ProviderLink> = {}): ProviderLink => ({
  issuer: 'https://login.example.org',
  subject: 'subject-1',
  provider_id: 'corp',
  name: 'Example corp',
  email: 'ada@there.example',
  linked_at: '2026-01-02T03:04:05Z',
  ...given,
})
const user = (person: SessionUser['person']): SessionUser => ({
  id: 'u-1',
  name: 'ada@example.org',
  email: 'ada@example.org',
  operator: false,
  organization_id: 'o-1',
  role: 'owner',
  person,
  project_id: null,
  read_only: false,
})
const ADA = user({ name: 'Ada', has_password: true, second_factor: false })

function answers(providers: AuthProvider[], links: ProviderLink[]) {
  vi.mocked(client.GET).mockImplementation(((path: string) =>
    Promise.resolve(path === '/api/v2/auth/links' ? { links } : { providers })) as never)
}

beforeEach(() => {
  for (const method of [client.GET, client.POST]) vi.mocked(method).mockReset()
})
afterEach(cleanup)

function show(what: ReactNode) {
  const queries = new QueryClient({ defaultOptions: { queries: { retry: false } } })
  render(
    <QueryClientProvider client={queries}>
      <ToastProvider>{what}</ToastProvider>
    </QueryClientProvider>,
  )
  return userEvent.setup()
}

it('shows what is linked and what could be, and asks for the one that was chosen', async () => {
  const onAsk = vi.fn()
  const gone = link({ issuer: 'https://gone.example', subject: 'b', provider_id: null, name: null })
  answers([provider('corp'), provider('other')], [link(), gone])
  const person = show(<LinkedProviders user={ADA} onAsk={onAsk} />)
  const rows = within(await screen.findByRole('list', { name: 'Identity providers' })).getAllByRole('listitem')
  expect(rows.map((row) => within(row).getByRole('heading').textContent)).toEqual([
    'Example corp',
    'https://gone.example',
    'Example other',
  ])
  expect(rows[0]).toHaveTextContent('ada@there.example (subject-1 there)')
  expect(rows[1]).toHaveTextContent('no longer knows the provider')
  await expectAccessible()
  await person.click(screen.getByRole('button', { name: 'End the link with ada@there.example at Example corp' }))
  expect(onAsk).toHaveBeenLastCalledWith({ unlink: link() })
  await person.click(screen.getByRole('button', { name: 'Link Example other' }))
  expect(onAsk).toHaveBeenLastCalledWith({ link: provider('other') })
})

it('is not there without providers and links, and asks nothing for an API key', async () => {
  answers([], [])
  show(<LinkedProviders user={ADA} onAsk={vi.fn()} />)
  await waitFor(() => {
    expect(client.GET).toHaveBeenCalledTimes(2)
  })
  expect(screen.queryByText('Identity providers')).toBeNull()
  cleanup()
  vi.mocked(client.GET).mockClear()
  answers([provider('corp')], [link()])
  show(<LinkedProviders user={user(null)} onAsk={vi.fn()} />)
  expect(client.GET).not.toHaveBeenCalled()
  expect(screen.queryByText('Identity providers')).toBeNull()
})

it('says why a person without a password changes no link, and that the links are not known', async () => {
  answers([provider('other')], [link()])
  show(<LinkedProviders user={user({ name: 'Ada', has_password: false, second_factor: false })} onAsk={vi.fn()} />)
  expect(await screen.findByRole('button', { name: /^End the link/ })).toBeDisabled()
  expect(screen.getByRole('button', { name: 'Link Example other' })).toBeDisabled()
  cleanup()
  vi.mocked(client.GET).mockRejectedValue(new ApiError(503, 'DATABASE_UNAVAILABLE', 'the database is away'))
  show(<LinkedProviders user={ADA} onAsk={vi.fn()} />)
  expect(await screen.findByText(/the database is away/)).toBeInTheDocument()
})

it('leaves for the provider once the password is proven, with a code where there is a second factor', async () => {
  const go = vi.fn()
  const person = show(<LinkForm provider={provider('corp')} secondFactor go={go} onClose={vi.fn()} />)
  await person.type(screen.getByLabelText('Your password'), 'the password')
  await person.type(screen.getByLabelText('Code'), '123456')
  await expectAccessible()
  vi.mocked(client.POST).mockRejectedValueOnce(new ApiError(409, 'CONFLICT', 'end that link first'))
  await person.click(screen.getByRole('button', { name: 'Go to Example corp' }))
  expect(await screen.findByRole('alert')).toHaveTextContent('end that link first')
  expect(go).not.toHaveBeenCalled()
  vi.mocked(client.POST).mockResolvedValueOnce({ url: 'https://login.example.org/authorize?x=1' } as never)
  await person.click(screen.getByRole('button', { name: 'Go to Example corp' }))
  await waitFor(() => {
    expect(go).toHaveBeenCalledExactlyOnceWith('https://login.example.org/authorize?x=1')
  })
  expect(client.POST).toHaveBeenLastCalledWith('/api/v2/auth/oidc/{provider_id}/link', {
    params: { path: { provider_id: 'corp' } },
    body: { password: 'the password', code: '123456' },
  })
})

it('ends the link that was chosen, and no code is asked for without a second factor', async () => {
  const onClose = vi.fn()
  const person = show(<AccountDialogs ask={{ unlink: link() }} secondFactor={false} onClose={onClose} />)
  expect(screen.queryByLabelText('Code')).toBeNull()
  await person.type(screen.getByLabelText('Your password'), 'the password')
  vi.mocked(client.POST).mockResolvedValueOnce({} as never)
  await person.click(screen.getByRole('button', { name: 'End link' }))
  await waitFor(() => {
    expect(onClose).toHaveBeenCalledOnce()
  })
  expect(client.POST).toHaveBeenCalledExactlyOnceWith('/api/v2/auth/links/end', {
    body: { password: 'the password', issuer: 'https://login.example.org', subject: 'subject-1' },
  })
})
