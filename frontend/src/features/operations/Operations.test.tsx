import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen } from '@testing-library/react'
import { afterEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import type { Operation } from '~/api/types'
import { expectAccessible } from '~/test-accessible'

import { Operations } from './Operations'

vi.mock('~/api/client', () => ({ client: { GET: vi.fn() }, unwrap: (answer: unknown) => answer }))

afterEach(cleanup)

it('has a name of its own for each landmark', async () => {
  const operation = {
    id: 'op-1',
    action: 'create_branch',
    status: 'finished',
    branch_id: 'br-1',
    total_duration_ms: 1200,
    created_at: '2026-01-01T00:00:00Z',
  } as Operation
  vi.mocked(client.GET).mockResolvedValue({ operations: [operation] } as never)
  render(
    <QueryClientProvider client={new QueryClient()}>
      <Operations projectId="p" branches={[]} branchId="br-1" />
    </QueryClientProvider>,
  )
  expect(await screen.findByRole('table', { name: 'Last operations' })).toBeInTheDocument()
  expect(screen.getByRole('region', { name: 'Operations' })).toBeInTheDocument()
  await expectAccessible()
})
