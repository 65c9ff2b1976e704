import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { afterEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import { ApiError } from '~/api/errors'
import type { Operation } from '~/api/types'
import { expectAccessible } from '~/test-accessible'
import { ToastProvider } from '~/ui/Toast'

import { Operations } from './Operations'

vi.mock('~/api/client', () => ({
  client: { GET: vi.fn(), POST: vi.fn() },
  unwrap: (answer: unknown) => answer,
}))

const get = vi.mocked(client.GET)
const post = vi.mocked(client.POST)

afterEach(() => {
  cleanup()
  get.mockReset()
  post.mockReset()
})

const operation = (more: Partial<Operation>) =>
  ({
    id: 'op-1',
    project_id: 'p',
    action: 'create_branch',
    status: 'finished',
    branch_id: 'br-1',
    cancellable: false,
    total_duration_ms: 1200,
    created_at: '2026-01-01T00:00:00Z',
    ...more,
  }) as Operation

const page = (operations: Operation[], cursor: string | null = null) =>
  ({ operations, pagination: { cursor } }) as never

function show(branchId?: string) {
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ToastProvider>
        <Operations projectId="p" branches={[]} branchId={branchId} />
      </ToastProvider>
    </QueryClientProvider>,
  )
}

it('has a name of its own for each landmark', async () => {
  get.mockResolvedValue(page([operation({})]))
  show('br-1')
  expect(await screen.findByRole('table', { name: 'Last operations' })).toBeInTheDocument()
  expect(screen.getByRole('region', { name: 'Operations' })).toBeInTheDocument()
  await expectAccessible()
})

it('cancels what can be cancelled, and offers it for nothing else', async () => {
  get.mockResolvedValue(
    page([
      operation({ id: 'op-2', action: 'detach_parent_branch', status: 'running', cancellable: true }),
      operation({ id: 'op-1' }),
    ]),
  )
  post.mockResolvedValue({} as never)
  show()
  const buttons = await screen.findAllByRole('button', { name: /^Cancel / })
  expect(buttons.map((button) => button.getAttribute('aria-label'))).toEqual(['Cancel detach branch'])
  await expectAccessible()
  await userEvent.click(buttons[0] as HTMLElement)
  expect(post).toHaveBeenCalledWith('/api/v2/projects/{project_id}/operations/{operation_id}/cancel', {
    params: { path: { project_id: 'p', operation_id: 'op-2' } },
  })
  expect(await screen.findByText('Cancelling: detach branch')).toBeInTheDocument()
})

it('says why one is not cancelled', async () => {
  get.mockResolvedValue(page([operation({ status: 'running', cancellable: true })]))
  post.mockRejectedValue(new ApiError(409, 'CONFLICT', 'operation op-1 cannot be cancelled: it is finished already'))
  show()
  await userEvent.click(await screen.findByRole('button', { name: 'Cancel create branch' }))
  expect(await screen.findByText(/it is finished already/)).toBeInTheDocument()
})

it('shows older operations by the cursor of the page before', async () => {
  get.mockImplementation(((_path: string, options: { params: { query: { cursor?: string } } }) =>
    options.params.query.cursor === 'older'
      ? page([operation({ id: 'op-1', action: 'start_compute', endpoint_id: 'ep-old' })])
      : page([operation({ id: 'op-2' })], 'older')) as never)
  show()
  expect(await screen.findByText('create branch')).toBeInTheDocument()
  expect(screen.queryByText('ep-old')).not.toBeInTheDocument()
  await userEvent.click(screen.getByRole('button', { name: /Load more/ }))
  expect(await screen.findByText('ep-old')).toBeInTheDocument()
  expect(screen.queryByRole('button', { name: /Load more/ })).not.toBeInTheDocument()
})
