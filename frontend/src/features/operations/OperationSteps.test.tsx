import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen } from '@testing-library/react'
import { afterEach, expect, it, vi } from 'vitest'

import type { Operation } from '~/api/types'

import { OperationSteps } from './OperationSteps'
import { operationQuery } from './queries'

// Nobody answers: what is shown is what is known.
vi.mock('~/api/client', () => ({
  client: { GET: () => new Promise(() => undefined) },
  unwrap: (pending: unknown) => pending,
}))

afterEach(cleanup)

const operation = (id: string, more: Partial<Operation>) =>
  ({
    id,
    project_id: 'p',
    action: 'create_branch',
    status: 'finished',
    failures_count: 0,
    created_at: '2026-01-01T00:00:00Z',
    updated_at: '2026-01-01T00:00:01Z',
    total_duration_ms: 1000,
    ...more,
  }) as Operation

function show(operations: Operation[]) {
  const client = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity } } })
  for (const each of operations) client.setQueryData(operationQuery('p', each.id).queryKey, { operation: each })
  const steps = operations.map((each) => ({
    operation: { ...each, status: 'scheduling' as const },
    what: `step ${each.id}`,
  }))
  render(
    <QueryClientProvider client={client}>
      <OperationSteps projectId="p" steps={steps} done="It is done." />
    </QueryClientProvider>,
  )
}

it('says that it is done, and what could not be done beside it', () => {
  show([operation('a', {}), operation('b', { warning: 'ep-1 does not start: no port' })])
  expect(screen.getByText('It is done.')).toBeInTheDocument()
  expect(screen.getByText('ep-1 does not start: no port')).toBeInTheDocument()
  expect(screen.getByText('finished, with a warning')).toBeInTheDocument()
})

it('says what failed, and does not call the rest done', () => {
  show([operation('a', { status: 'failed', error: 'storage refused' }), operation('b', { status: 'skipped' })])
  expect(screen.getByRole('alert')).toHaveTextContent('storage refused')
  expect(screen.queryByText('It is done.')).not.toBeInTheDocument()
})
