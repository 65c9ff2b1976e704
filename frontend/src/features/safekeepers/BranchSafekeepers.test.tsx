import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen, waitFor, within } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import { ApiError } from '~/api/errors'
import type { Branch, BranchSafekeeper, BranchSafekeepers as Held } from '~/api/types'
import { ToastProvider } from '~/ui/Toast'

import { BranchSafekeepers } from './BranchSafekeepers'

vi.mock('~/api/client', () => ({ client: { GET: vi.fn(), POST: vi.fn() }, unwrap: (answer: unknown) => answer }))
const [get, post] = [vi.mocked(client.GET), vi.mocked(client.POST)]

beforeEach(() => {
  post.mockReset().mockResolvedValue({ operations: [] } as never)
})
afterEach(cleanup)

const DISK = '0123456789abcdef0123456789abcdef'
const member = (id: number, more: Partial<BranchSafekeeper> = {}): BranchSafekeeper => ({
  safekeeper_id: id,
  role: 'voter',
  disk: DISK,
  incarnation: 0,
  state: 'active',
  reason: null,
  term: 9,
  flush_lsn: '0/16B3748',
  commit_lsn: '0/16B3748',
  lag_bytes: 0,
  since: null,
  sick_since: null,
  ...more,
})

function show(held: Partial<Held> | Error, operation: unknown = null) {
  const answer = {
    generation: 4,
    generation_term: 9,
    reason: null,
    members: [member(1), member(2), member(3)],
    operation_id: null,
    wanted: null,
    available: [4, 5],
    ...held,
  }
  get.mockImplementation(((path: string) =>
    held instanceof Error
      ? Promise.reject(held)
      : Promise.resolve(path.includes('/operations/') ? { operation } : answer)) as never)
  render(
    <QueryClientProvider client={new QueryClient({ defaultOptions: { queries: { retry: false } } })}>
      <ToastProvider>
        <BranchSafekeepers projectId="p" branch={{ id: 'br-1', name: 'main', current_state: 'ready' } as Branch} />
      </ToastProvider>
    </QueryClientProvider>,
  )
}

const cells = async () =>
  (await screen.findAllByRole('row')).slice(1).map((row) =>
    within(row)
      .getAllByRole('cell')
      .map((cell) => cell.textContent),
  )
const sent = () =>
  post.mock.calls.map((call) => (call[1] as unknown as { body: { safekeepers: number[] } }).body.safekeepers)

it('shows each member with its role, state, lag and disk', async () => {
  show({
    members: [
      member(1),
      member(2, { state: 'lost', reason: 'it answers and lacks this log', flush_lsn: null, lag_bytes: null }),
      member(3, { role: 'learner', lag_bytes: 2048 }),
      member(4, { role: 'none', disk: null, lag_bytes: null }),
    ],
  })
  expect(screen.getByRole('status')).toHaveTextContent('Loading')
  const rows = await cells()
  expect(rows.map((row) => row.slice(1, 4))).toEqual([
    ['voter', 'active', 'nothing'],
    ['voter', 'log lostit answers and lacks this log', '—'],
    ['learner', 'active', '2 KiB'],
    ['set aside', 'kept', '—'],
  ])
  expect(rows.map((row) => row[5])).toEqual(['01234567', '01234567', '01234567', '—'])
  expect(screen.getByText('no majority: commits wait')).toBeInTheDocument()
})

it('says what is wrong with a member and since when, and that a damaged one still acknowledges', async () => {
  const since = new Date(Date.now() - 3 * 3600_000).toISOString()
  show({
    members: [
      member(1, { state: 'damaged', reason: 'its WAL is damaged', sick_since: since }),
      member(2, { state: 'diverged', reason: 'another history: they part at 0/16', sick_since: since }),
      member(3),
    ],
  })
  const rows = await cells()
  expect(rows.map((row) => row[2])).toEqual([
    'damagedits WAL is damagedSince 3 h ago.',
    'another historyanother history: they part at 0/16Since 3 h ago.',
    'active',
  ])
  expect(screen.getByText('voters that do not acknowledge').previousSibling).toHaveTextContent('1')
})

it('follows a change that is under way, and begins no other', async () => {
  show({ operation_id: 'op-1', wanted: [1, 2, 4] }, { id: 'op-1', status: 'running', total_duration_ms: 3000 })
  expect(await screen.findByText(/Becoming safekeepers 1, 2, 4/)).toBeInTheDocument()
  expect(await screen.findByText('running')).toBeInTheDocument()
  expect(screen.getByRole('button', { name: 'Change safekeepers' })).toBeDisabled()
})

it('changes the voters to those chosen, and says what follows', async () => {
  const user = userEvent.setup()
  show({ members: [member(1), member(2), member(3, { state: 'lost', reason: 'no log' })] })
  await user.click(await screen.findByRole('button', { name: 'Change safekeepers' }))
  const dialog = within(await screen.findByRole('dialog'))
  expect(dialog.getByText(/made again on safekeeper 3/)).toBeInTheDocument()
  await user.click(dialog.getByRole('checkbox', { name: /Safekeeper 3/ }))
  expect(dialog.getByText('Choose 3 or 5.')).toBeInTheDocument()
  expect(dialog.getByRole('button', { name: 'Change safekeepers' })).toBeDisabled()
  await user.click(dialog.getByRole('checkbox', { name: /Safekeeper 4/ }))
  expect(dialog.getByText(/copied to safekeeper 4/)).toBeInTheDocument()
  expect(dialog.getByText(/safekeeper 3 votes no more/)).toBeInTheDocument()
  await user.click(dialog.getByRole('button', { name: 'Change safekeepers' }))
  await waitFor(() => {
    expect(screen.queryByRole('dialog')).not.toBeInTheDocument()
  })
  expect(sent()).toEqual([[1, 2, 4]])
})

it('offers what the last change did not get to, by the keyboard alone', async () => {
  const user = userEvent.setup()
  show({ wanted: [1, 2, 5] })
  expect(await screen.findByText(/did not get to safekeepers 1, 2, 5/)).toBeInTheDocument()
  screen.getByRole('button', { name: 'Change safekeepers' }).focus()
  await user.keyboard('{Enter}')
  const dialog = within(await screen.findByRole('dialog'))
  expect(dialog.getByRole('checkbox', { name: /Safekeeper 5/ })).toBeChecked()
  dialog.getByRole('checkbox', { name: /Safekeeper 5/ }).focus()
  await user.keyboard('{Tab}{Tab}{Enter}')
  await waitFor(() => {
    expect(sent()).toEqual([[1, 2, 5]])
  })
})

it('keeps the choice when the server refuses it, and says why', async () => {
  post.mockRejectedValue(new ApiError(412, 'PRECONDITION_FAILED', 'no majority of the voters answers'))
  const user = userEvent.setup()
  show({})
  await user.click(await screen.findByRole('button', { name: 'Change safekeepers' }))
  const dialog = within(await screen.findByRole('dialog'))
  await user.click(dialog.getByRole('checkbox', { name: /Safekeeper 4/ }))
  await user.click(dialog.getByRole('checkbox', { name: /Safekeeper 5/ }))
  await user.click(dialog.getByRole('button', { name: 'Change safekeepers' }))
  expect(await screen.findByText(/no majority of the voters answers/)).toBeInTheDocument()
  expect(dialog.getByRole('checkbox', { name: /Safekeeper 5/ })).toBeChecked()
})

it('says so when nobody shows the log, and when the API does not answer', async () => {
  show({ generation: null, generation_term: null, reason: 'no safekeeper shows the log of this branch', members: [] })
  expect(await screen.findByText(/This may not be the newest: no safekeeper shows/)).toBeInTheDocument()
  expect(screen.getByText('No safekeeper shows the log of this branch.')).toBeInTheDocument()
  cleanup()
  show(new ApiError(503, 'DEPENDENCY_UNAVAILABLE', 'the safekeepers do not answer'))
  expect(await screen.findByRole('alert')).toHaveTextContent('the safekeepers do not answer')
})
