import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen, waitFor } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import type { ReactNode } from 'react'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import type { Branch, Snapshot } from '~/api/types'
import { expectAccessible } from '~/test-accessible'
import { ToastProvider } from '~/ui/Toast'

import type { SnapshotAsk } from './ask'
import { PendingRestores } from './PendingRestores'
import { ScheduleCard } from './ScheduleCard'
import { SnapshotDialogs } from './SnapshotDialogs'
import { SnapshotTable } from './SnapshotTable'

vi.mock('~/api/client', () => ({
  client: { GET: vi.fn(), POST: vi.fn(), PUT: vi.fn(), DELETE: vi.fn() },
  unwrap: (answer: unknown) => answer,
}))

const at = '2026-01-02T03:04:05Z'
const entry = { frequency: 'weekly', hour: 2, day: 7, retention_seconds: 86_400, next_at: at }

beforeEach(() => {
  vi.mocked(client.GET).mockImplementation(((path: string) =>
    Promise.resolve(
      path.endsWith('/history')
        ? { oldest_lsn: '0/1', newest_lsn: '0/9', oldest_timestamp: at, newest_timestamp: at, branch_points: [] }
        : { schedule: [entry] },
    )) as never)
  for (const method of [client.POST, client.PUT, client.DELETE]) {
    vi.mocked(method).mockReset()
    vi.mocked(method).mockResolvedValue({ operations: [], branch: { name: 'look' } } as never)
  }
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

const branch = (id: string, more: Partial<Branch> = {}) =>
  ({ id, name: id, current_state: 'ready', default: id === 'main', protected: false, ...more }) as Branch
const snapshot = (id: string, more: Partial<Snapshot> = {}) =>
  ({
    id,
    name: `${id} name`,
    source_branch_id: 'main',
    timestamp: at,
    created_at: at,
    created_by: { name: 'admin' },
    manual: true,
    current_state: 'ready',
    lsn: '0/5',
    full_size: 2048,
    ...more,
  }) as Snapshot
const branches = [branch('main'), branch('dev')]

function ask(what: SnapshotAsk) {
  return show(<SnapshotDialogs projectId="p" since={at} ask={what} branches={branches} onClose={vi.fn()} />)
}

it('lists snapshots, and restores none that is still being taken', async () => {
  const onAsk = vi.fn()
  const user = show(
    <SnapshotTable
      snapshots={[
        snapshot('one'),
        snapshot('two', { current_state: 'init', manual: false, source_branch_id: 'gone', expires_at: at }),
      ]}
      branches={branches}
      onAsk={onAsk}
    />,
  )
  expect(screen.getByText('a branch that is gone')).toBeInTheDocument()
  expect(screen.getByText('scheduled')).toBeInTheDocument()
  expect(screen.getByRole('button', { name: 'Restore two name' })).toBeDisabled()
  await expectAccessible()
  await user.click(screen.getByRole('button', { name: 'Restore one name' }))
  expect(onAsk).toHaveBeenCalledWith(expect.objectContaining({ what: 'restore' }))
})

it('takes a snapshot of a branch’s newest state', async () => {
  const user = ask({ what: 'create' })
  expect(screen.getByLabelText('Of branch')).toHaveValue('main')
  await user.selectOptions(screen.getByLabelText('Of branch'), 'dev')
  await user.type(screen.getByLabelText('Name'), ' before ')
  await expectAccessible()
  await user.click(screen.getByRole('button', { name: 'Take snapshot' }))
  await waitFor(() => {
    expect(client.POST).toHaveBeenCalledWith(expect.stringContaining('/snapshot'), {
      params: { path: { project_id: 'p', branch_id: 'dev' }, query: { name: 'before' } },
    })
  })
})

it('restores beside the branch unless told otherwise, and in place once the name is typed', async () => {
  const user = ask({ what: 'restore', snapshot: snapshot('one') })
  expect(screen.getByLabelText('It may replace later')).toHaveValue('main')
  await user.type(screen.getByLabelText('Name of the new branch'), 'dev')
  expect(screen.getByRole('button', { name: 'Make branch' })).toBeDisabled()
  await user.selectOptions(screen.getByLabelText('As'), 'place')
  const button = screen.getByRole('button', { name: 'Restore in place' })
  expect(button).toBeDisabled()
  await expectAccessible()
  await user.type(screen.getByLabelText('Type main to confirm'), 'main')
  await user.click(button)
  await waitFor(() => {
    expect(client.POST).toHaveBeenCalledWith(expect.stringContaining('/restore'), {
      params: { path: { project_id: 'p', snapshot_id: 'one' } },
      body: { finalize_restore: true, target_branch_id: 'main' },
    })
  })
})

it('deletes a snapshot once its name is typed', async () => {
  const user = ask({ what: 'delete', snapshot: snapshot('one') })
  const gone = screen.getByRole('button', { name: 'Delete for good' })
  expect(gone).toBeDisabled()
  await user.type(screen.getByLabelText('Type one name to confirm'), 'one name')
  await user.click(gone)
  await waitFor(() => {
    expect(client.DELETE).toHaveBeenCalledWith(expect.stringContaining('{snapshot_id}'), {
      params: { path: { project_id: 'p', snapshot_id: 'one' } },
    })
  })
})

it('shows restores that can still be put in place', async () => {
  const onAsk = vi.fn()
  const made = branch('look', { restored_as: 'main' })
  const user = show(<PendingRestores branches={[...branches, made]} onAsk={onAsk} />)
  await user.click(screen.getByRole('button', { name: 'Put look in place of main' }))
  expect(onAsk).toHaveBeenCalledWith({ what: 'finalize', branch: made })
  await expectAccessible()
})

it('adds to a schedule, and takes from it, without losing the rest', async () => {
  const user = show(<ScheduleCard projectId="p" branches={branches} />)
  expect(await screen.findByText('Each Sunday at 02:00 UTC')).toBeInTheDocument()
  await expectAccessible()
  await user.selectOptions(screen.getByLabelText('Take one'), 'monthly')
  await user.selectOptions(screen.getByLabelText('On day'), '31')
  await user.selectOptions(screen.getByLabelText('Keep each for'), '35 days')
  await user.click(screen.getByRole('button', { name: 'Add to schedule' }))
  const kept = { frequency: 'weekly', hour: 2, day: 7, retention_seconds: 86_400 }
  await waitFor(() => {
    expect(client.PUT).toHaveBeenCalledWith(expect.stringContaining('/backup_schedule'), {
      params: { path: { project_id: 'p', branch_id: 'main' } },
      body: { schedule: [kept, { frequency: 'monthly', hour: 3, day: 31, retention_seconds: 3_024_000 }] },
    })
  })
  await user.click(screen.getByRole('button', { name: 'Remove: Each Sunday at 02:00 UTC' }))
  await waitFor(() => {
    expect(client.PUT).toHaveBeenLastCalledWith(
      expect.anything(),
      expect.objectContaining({ body: { schedule: [] } }),
    )
  })
})
