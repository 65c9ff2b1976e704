import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen, waitFor, within } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import type { SafekeeperHealth, StorageHealth } from '~/api/types'
import { ToastProvider } from '~/ui/Toast'

import { StorageNodes } from './StorageNodes'

vi.mock('~/api/client', () => ({ client: { GET: vi.fn(), POST: vi.fn() }, unwrap: (answer: unknown) => answer }))
const [get, post] = [vi.mocked(client.GET), vi.mocked(client.POST)]

beforeEach(() => {
  post.mockReset()
})
afterEach(cleanup)

const safekeeper = (id: number, more: Partial<SafekeeperHealth> = {}): SafekeeperHealth => ({
  id,
  address: `127.0.0.1:${String(7510 + id)}`,
  healthy: true,
  reason: null,
  timelines: 7,
  lost_timelines: 0,
  branches: 7,
  replacing: 0,
  ...more,
})

function show(safekeepers: SafekeeperHealth[], operator: boolean) {
  get.mockResolvedValue({ user: { id: 'a', name: 'admin', email: '', operator } } as never)
  const storage: StorageHealth = {
    safekeepers,
    pageservers: [
      { id: 1, address: '127.0.0.1:7601', healthy: false, reason: 'connection refused', timelines: null },
    ],
  }
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ToastProvider>
        <StorageNodes storage={storage} />
      </ToastProvider>
    </QueryClientProvider>,
  )
}

it('shows what each safekeeper holds, lost and changes', () => {
  show(
    [
      safekeeper(1),
      safekeeper(2, {
        healthy: false,
        reason: 'connection refused',
        timelines: null,
        lost_timelines: 1,
        replacing: 3,
      }),
    ],
    false,
  )
  const rows = within(screen.getByRole('table', { name: 'Safekeeper nodes' }))
    .getAllByRole('row')
    .slice(1)
  const cells = rows.map((row) =>
    within(row)
      .getAllByRole('cell')
      .map((cell) => cell.textContent),
  )
  expect(cells.map((row) => row.slice(2))).toEqual([
    ['healthy', '7 branches', '7', '0'],
    ['does not answerlost 1 logconnection refused', '7 branches', '—', '3'],
  ])
  expect(
    within(screen.getByRole('table', { name: 'Pageserver nodes' })).getByText('does not answer'),
  ).toBeInTheDocument()
})

it('says what is wrong with logs on a safekeeper that answers, and since when', () => {
  const since = new Date(Date.now() - 7 * 60_000).toISOString()
  show(
    [
      safekeeper(1, {
        sick: [{ kind: 'damaged', branches: 2, since, reason: 'its WAL from 0/16 to 0/17 is damaged' }],
      }),
    ],
    false,
  )
  expect(
    screen.getByText('damaged in 2 branches, first seen 7 min ago: its WAL from 0/16 to 0/17 is damaged'),
  ).toBeInTheDocument()
  expect(screen.queryByText('healthy')).not.toBeInTheDocument()
})

it('lets operators alone replace a safekeeper', async () => {
  show([safekeeper(1), safekeeper(2)], false)
  await waitFor(() => {
    expect(get).toHaveBeenCalled()
  })
  expect(screen.queryByRole('button', { name: /Replace/ })).not.toBeInTheDocument()
  cleanup()
  show([safekeeper(1), safekeeper(2, { branches: 0 })], true)
  expect(await screen.findByRole('button', { name: 'Replace safekeeper 1' })).toBeEnabled()
  expect(screen.getByRole('button', { name: 'Replace safekeeper 2' })).toBeDisabled()
})

it('goes on until all branches have been looked at, and names those left as they are', async () => {
  post
    .mockResolvedValueOnce({
      queued: 199,
      remaining: 2,
      next: 'br-199',
      operations: [],
      not_queued: [{ branch_id: 'br-7', project_id: 'p', reason: 'the project is busy' }],
    } as never)
    .mockResolvedValueOnce({ queued: 2, remaining: 0, next: null, operations: [], not_queued: [] } as never)
  const user = userEvent.setup()
  show([safekeeper(1), safekeeper(2), safekeeper(3, { healthy: false }), safekeeper(4)], true)
  await user.click(await screen.findByRole('button', { name: 'Replace safekeeper 3' }))
  const dialog = within(await screen.findByRole('dialog'))
  expect(dialog.getAllByRole('option').map((option) => option.textContent)).toEqual([
    'safekeeper 1, in 7 branches',
    'safekeeper 2, in 7 branches',
    'safekeeper 4, in 7 branches',
  ])
  await user.selectOptions(dialog.getByRole('combobox'), '4')
  await user.click(dialog.getByRole('button', { name: 'Replace' }))
  expect(await dialog.findByText('201 branches are being changed.')).toBeInTheDocument()
  expect(dialog.getByText(/the project is busy/)).toBeInTheDocument()
  const bodies = post.mock.calls.map((call) => (call[1] as unknown as { body: unknown }).body)
  expect(bodies).toEqual([{ with: 4 }, { with: 4, after: 'br-199' }])
})

it('offers to make lost logs again on the safekeeper that lost them', async () => {
  post.mockResolvedValue({ queued: 2, remaining: 0, next: null, operations: [], not_queued: [] } as never)
  const user = userEvent.setup()
  show([safekeeper(1), safekeeper(2, { lost_timelines: 2, reason: 'lacks the WAL of 2 branches' })], true)
  await user.click(await screen.findByRole('button', { name: 'Replace safekeeper 2' }))
  const dialog = within(await screen.findByRole('dialog'))
  expect(dialog.getByRole('combobox')).toHaveValue('2')
  await user.click(dialog.getByRole('button', { name: 'Replace' }))
  await waitFor(() => {
    expect(post.mock.calls.map((call) => (call[1] as unknown as { body: unknown }).body)).toEqual([{ with: 2 }])
  })
})
