import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen, waitFor } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import type { ApiKey } from '~/api/types'
import { expectAccessible } from '~/test-accessible'
import { ToastProvider } from '~/ui/Toast'

import { KeyDialogs } from './KeyForms'
import { KeyTable } from './KeyTable'

vi.mock('~/api/client', () => ({
  client: { GET: vi.fn(), POST: vi.fn() },
  unwrap: (answer: unknown) => answer,
}))

beforeEach(() => {
  vi.mocked(client.GET).mockResolvedValue({ projects: [{ id: 'p-1', name: 'shop' }] } as never)
  vi.mocked(client.POST).mockReset()
  vi.mocked(client.POST).mockResolvedValue({ id: 7, name: 'ci', key: 'weir_of-the-test' } as never)
})
afterEach(cleanup)

function create(onClose = vi.fn()) {
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ToastProvider>
        <KeyDialogs ask={{ what: 'create' }} onClose={onClose} />
      </ToastProvider>
    </QueryClientProvider>,
  )
  return userEvent.setup()
}

it('shows a new key once, and not before it is made', async () => {
  const onClose = vi.fn()
  const user = create(onClose)
  await user.type(screen.getByLabelText('Name'), ' ci ')
  await user.click(screen.getByRole('button', { name: 'Create key' }))
  expect(await screen.findByText('weir_of-the-test')).toBeInTheDocument()
  expect(client.POST).toHaveBeenCalledWith(expect.anything(), { body: { key_name: 'ci' } })
  await expectAccessible()
  expect(onClose).not.toHaveBeenCalled()
  await user.click(screen.getByRole('button', { name: 'Done' }))
  expect(onClose).toHaveBeenCalledOnce()
})

it('narrows a key to a project, to reading, and to some days', async () => {
  const user = create()
  await user.type(screen.getByLabelText('Name'), 'ci')
  await screen.findByRole('option', { name: 'the project shop' })
  await user.selectOptions(screen.getByLabelText('For'), 'the project shop')
  await user.selectOptions(screen.getByLabelText('Expires'), 'in 30 days')
  await user.click(screen.getByLabelText(/Reads only/))
  const from = Date.now()
  await user.click(screen.getByRole('button', { name: 'Create key' }))
  await waitFor(() => {
    expect(client.POST).toHaveBeenCalledOnce()
  })
  const { body } = vi.mocked(client.POST).mock.calls[0]?.[1] as unknown as { body: { expires_at: string } }
  expect(body).toMatchObject({ key_name: 'ci', project_id: 'p-1', read_only: true })
  const days = (Date.parse(body.expires_at) - from) / 86_400_000
  expect(days).toBeGreaterThanOrEqual(30)
  expect(days).toBeLessThan(30.01)
})

const key = (name: string, more: Partial<ApiKey> = {}): ApiKey => ({
  id: name.length,
  name,
  role: 'owner',
  project_id: null,
  read_only: false,
  expires_at: null,
  created_at: '2026-01-02T03:04:05Z',
  created_by: { id: 'u-1', name: 'ada@example.org', image: '' },
  last_used_at: null,
  last_used_from_addr: '',
  ...more,
})

it('says what a key may do, until when, and whether anything uses it', async () => {
  const used = { last_used_at: new Date(Date.now() - 3_600_000).toISOString(), last_used_from_addr: '192.0.2.1' }
  render(
    <KeyTable
      empty=""
      refused="You are a viewer here."
      onRevoke={vi.fn()}
      keys={[
        key('wide', used),
        key('narrow', { project_id: 'p-1', read_only: true, expires_at: '2020-01-01T00:00:00Z' }),
      ]}
    />,
  )
  const [, wide, narrow] = screen.getAllByRole('row')
  expect(wide).toHaveTextContent('act as owner')
  expect(wide).toHaveTextContent('in all of the organisation')
  expect(wide).toHaveTextContent('1 h agofrom 192.0.2.1')
  expect(narrow).toHaveTextContent('reads only')
  expect(narrow).toHaveTextContent('in p-1 alone')
  expect(narrow).toHaveTextContent(/expired \d+ d ago/)
  expect(screen.getByRole('button', { name: 'Revoke wide' })).toBeDisabled()
  await expectAccessible()
})
