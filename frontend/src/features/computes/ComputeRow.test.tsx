import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen, waitFor } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import type { ReactNode } from 'react'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import { ApiError } from '~/api/errors'
import type { Endpoint } from '~/api/types'
import { ToastProvider } from '~/ui/Toast'

import { ComputeRow } from './ComputeRow'

vi.mock('@tanstack/react-router', () => ({
  Link: ({ children }: { children: ReactNode }) => <a href="/">{children}</a>,
}))
vi.mock('~/api/client', () => ({ client: { POST: vi.fn() }, unwrap: (answer: unknown) => answer }))
const post = vi.mocked(client.POST)

const REASON = 'compute ep-1 holds 12.0 MB in unlogged tables (appdb: public.cache 12.0 MB)'
const endpoint = { id: 'ep-1', current_state: 'active', suspend_timeout_seconds: 0 } as Endpoint

beforeEach(() => {
  post.mockReset().mockResolvedValue({ operations: [] } as never)
})
afterEach(cleanup)

function show() {
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ToastProvider>
        <ComputeRow projectId="p" endpoint={endpoint} />
      </ToastProvider>
    </QueryClientProvider>,
  )
}

const discards = () =>
  post.mock.calls.map(
    (call) =>
      (call[1] as unknown as { params: { query: { discard_unlogged: boolean } } }).params.query.discard_unlogged,
  )

it('asks before a suspend loses rows, and says which', async () => {
  const user = userEvent.setup()
  post.mockRejectedValueOnce(new ApiError(409, 'UNLOGGED_ROWS', REASON))
  show()
  await user.click(screen.getByRole('button', { name: 'Suspend' }))
  const dialog = await screen.findByRole('dialog', { name: 'Suspend and lose rows?' })
  expect(dialog).toHaveTextContent(REASON)
  const lose = screen.getByRole('button', { name: 'Suspend and lose them' })
  expect(lose).toBeDisabled()
  await user.click(screen.getByRole('checkbox'))
  await user.click(lose)
  await waitFor(() => {
    expect(screen.queryByRole('dialog')).not.toBeInTheDocument()
  })
  expect(discards()).toEqual([false, true])
})

it('loses nothing when the question is cancelled', async () => {
  const user = userEvent.setup()
  post.mockRejectedValueOnce(new ApiError(409, 'UNLOGGED_ROWS', REASON))
  show()
  await user.click(screen.getByRole('button', { name: 'Suspend' }))
  await screen.findByRole('dialog')
  await user.click(screen.getByRole('button', { name: 'Cancel' }))
  expect(discards()).toEqual([false])
})

it('says any other refusal as a message', async () => {
  const user = userEvent.setup()
  post.mockRejectedValueOnce(new ApiError(423, 'PROJECT_BUSY', 'another operation holds the project'))
  show()
  await user.click(screen.getByRole('button', { name: 'Suspend' }))
  expect(await screen.findByText('another operation holds the project')).toBeInTheDocument()
  expect(screen.queryByRole('dialog')).not.toBeInTheDocument()
})
