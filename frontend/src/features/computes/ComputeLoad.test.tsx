import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen } from '@testing-library/react'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import type { Endpoint } from '~/api/types'

import { ComputeLoad } from './ComputeLoad'

vi.mock('~/api/client', () => ({ client: { GET: vi.fn() }, unwrap: (answer: unknown) => answer }))
const get = vi.mocked(client.GET)
const load = { processors: 0.75, memory_bytes: 1024, buffer_hits_per_second: 3, buffer_reads_per_second: 1 }

beforeEach(() => {
  get.mockReset().mockResolvedValue({ compute: { load } } as never)
})
afterEach(cleanup)

function show(more: Partial<Endpoint>) {
  const endpoint = {
    id: 'ep-1',
    current_state: 'active',
    current_cu: 1,
    autoscaling_limit_min_cu: 1,
    autoscaling_limit_max_cu: 1,
    ...more,
  } as Endpoint
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ComputeLoad endpoint={endpoint} />
    </QueryClientProvider>,
  )
}

it('shows the load beside the size and its limits', async () => {
  show({ current_cu: 0.5, autoscaling_limit_min_cu: 0.25, autoscaling_limit_max_cu: 2 })
  expect(screen.getByText('0.5 CU of 0.25 to 2')).toBeInTheDocument()
  expect(
    await screen.findByText('0.5 CU of 0.25 to 2 · 0.75 processors, 1 KiB used, 75% of pages from memory'),
  ).toBeInTheDocument()
})

it('asks no compute that does not run', () => {
  show({ current_state: 'idle' })
  expect(screen.getByText('1 CU')).toBeInTheDocument()
  expect(get).not.toHaveBeenCalled()
})
