import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen, waitFor } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import type { Branch, Project } from '~/api/types'
import { ToastProvider } from '~/ui/Toast'

import { HistoryWindowForm, QuotaForm } from './StorageForms'
import { WalRateForm } from './WalRateForm'

vi.mock('~/api/client', () => ({ client: { PATCH: vi.fn() }, unwrap: (answer: unknown) => answer }))
const patch = vi.mocked(client.PATCH)

beforeEach(() => {
  patch.mockReset().mockResolvedValue({ operations: [] } as never)
})
afterEach(cleanup)

const project = {
  id: 'p',
  name: 'shop',
  history_retention_seconds: 604_800,
  branch_logical_size_limit_bytes: 0,
  settings: {},
} as Project
const branches = [{ id: 'br-1', name: 'main', logical_size: 50 * 2 ** 20 } as Branch]

function show(Form: typeof QuotaForm) {
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ToastProvider>
        <Form project={project} branches={branches} onClose={vi.fn()} />
      </ToastProvider>
    </QueryClientProvider>,
  )
}

const sent = () => patch.mock.calls.map((call) => (call[1] as unknown as { body: { project: unknown } }).body.project)

it('refuses a window longer than the API takes, and confirms a shorter one by name', async () => {
  const user = userEvent.setup()
  show(HistoryWindowForm)
  const amount = screen.getByLabelText('Keep history for')
  await user.clear(amount)
  await user.type(amount, '31')
  expect(screen.getByRole('alert')).toHaveTextContent('At most 30 d.')
  expect(amount).toBeInvalid()
  await user.clear(amount)
  await user.type(amount, '2{Enter}')
  expect(screen.queryByRole('alert')).not.toBeInTheDocument()
  expect(screen.getByRole('button', { name: 'Shorten and drop history' })).toBeDisabled()
  expect(sent()).toEqual([])
  await user.type(screen.getByLabelText('Type shop to confirm'), 'shop{Enter}')
  await waitFor(() => {
    expect(sent()).toEqual([{ history_retention_seconds: 172_800 }])
  })
})

it('sends a quota in bytes, and says whom it stops', async () => {
  const user = userEvent.setup()
  show(QuotaForm)
  await user.click(screen.getByLabelText('Limit the data of each branch'))
  await user.type(screen.getByLabelText('Quota of each branch'), '0')
  expect(screen.getByRole('alert')).toHaveTextContent('A number above 0.')
  await user.clear(screen.getByLabelText('Quota of each branch'))
  await user.type(screen.getByLabelText('Quota of each branch'), '1,5')
  await user.selectOptions(screen.getByLabelText('Unit'), 'MiB')
  expect(screen.getByText(/main \(50 MiB\) will take no more data/)).toBeInTheDocument()
  await user.click(screen.getByRole('button', { name: 'Set quota' }))
  await waitFor(() => {
    expect(sent()).toEqual([{ settings: { quota: { logical_size_bytes: 1.5 * 2 ** 20 } } }])
  })
})

it('sends a limit of WAL in bytes a second', async () => {
  const user = userEvent.setup()
  show(WalRateForm)
  await user.click(screen.getByLabelText('Limit the WAL of each compute'))
  const amount = screen.getByLabelText('MiB a second')
  await user.type(amount, '0')
  expect(screen.getByRole('alert')).toHaveTextContent('A number above 0.')
  await user.clear(amount)
  await user.type(amount, '4')
  await user.click(screen.getByRole('button', { name: 'Set limit' }))
  await waitFor(() => {
    expect(sent()).toEqual([{ settings: { quota: { wal_bytes_per_second: 4 * 2 ** 20 } } }])
  })
})
