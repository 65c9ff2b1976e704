import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen, within } from '@testing-library/react'
import { afterEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import type { ComputeSetting } from '~/api/types'

import { ComputeSettings } from './ComputeSettings'

vi.mock('~/api/client', () => ({ client: { GET: vi.fn() }, unwrap: (answer: unknown) => answer }))
afterEach(cleanup)

function show(settings: ComputeSetting[]) {
  vi.mocked(client.GET).mockResolvedValue({ settings } as never)
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ComputeSettings computeId="ep-1" />
    </QueryClientProvider>,
  )
}

it('says of each setting what was chosen, what is in force, and why it is not', async () => {
  show([
    { name: 'work_mem', wanted: '8MB', in_force: '8MB', state: 'in_force' },
    { name: 'max_connections', wanted: '200', in_force: '100', state: 'pending_restart' },
    { name: 'shared_buffers', wanted: '9GB', in_force: '128MB', state: 'failed', reason: 'out of memory' },
    { name: 'jit', wanted: 'off', in_force: null, state: 'unknown' },
  ])
  const row = async (name: string) => within((await screen.findByText(name)).closest('tr') as HTMLElement)
  expect((await row('work_mem')).getByText('in force')).toBeInTheDocument()
  expect((await row('max_connections')).getByText('from the next start')).toBeInTheDocument()
  expect((await row('max_connections')).getByText('100')).toBeInTheDocument()
  expect((await row('shared_buffers')).getByText('out of memory')).toBeInTheDocument()
  expect((await row('jit')).getByText('—')).toBeInTheDocument()
})

it('says that nothing was chosen', async () => {
  show([])
  expect(await screen.findByText(/No setting was chosen/)).toBeInTheDocument()
})
