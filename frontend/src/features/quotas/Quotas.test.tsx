import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen, within } from '@testing-library/react'
import { afterEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import type { Quota } from '~/api/types'
import { expectAccessible } from '~/test-accessible'

import { QuotaBars, Quotas } from './Quotas'

vi.mock('~/api/client', () => ({ client: { GET: vi.fn() }, unwrap: (answer: unknown) => answer }))
afterEach(cleanup)

const quota = (name: Quota['name'], used: number | null, limit: number | null, more: Partial<Quota> = {}): Quota => ({
  name,
  per: 'account',
  used,
  limit,
  fullest: null,
  measured_at: null,
  ...more,
})

function item(name: string): HTMLElement {
  const found = screen.getAllByRole('listitem').find((each) => within(each).queryByText(name) != null)
  if (!found) throw new Error(`there is no quota ${name}`)
  return found
}

it('shows use beside the limit, and a bar that is as full', async () => {
  render(
    <QuotaBars
      owner="account"
      quotas={[
        quota('projects', 3, 12),
        quota('computes', 9, 10),
        quota('api_keys', 5, 4),
        quota('storage_bytes', 1536, 3072),
      ]}
    />,
  )
  expect(within(item('Projects')).getByRole('meter', { name: 'Projects' })).toHaveAttribute('aria-valuenow', '25')
  expect(item('Projects')).toHaveTextContent('3 of 12')
  expect(item('Running computes')).toHaveTextContent('9 of 10 — nearly full')
  // A limit that was lowered below what is there: the bar is full, and no fuller.
  expect(item('API keys')).toHaveTextContent('5 of 4 — full')
  expect(within(item('API keys')).getByRole('meter')).toHaveAttribute('aria-valuenow', '100')
  expect(item('Storage')).toHaveTextContent('1.5 KiB of 3 KiB')
  await expectAccessible()
})

it('shows no bar where there is no limit, or nothing was measured', () => {
  render(<QuotaBars owner="account" quotas={[quota('projects', 3, null), quota('storage_bytes', null, 1024)]} />)
  expect(item('Projects')).toHaveTextContent('3, no limit')
  expect(item('Storage')).toHaveTextContent('not measured yet of 1 KiB')
  expect(screen.queryByRole('meter')).toBeNull()
})

it('says that nothing may be had where the limit is 0', () => {
  render(<QuotaBars owner="account" quotas={[quota('computes', 0, 0)]} />)
  expect(item('Running computes')).toHaveTextContent('0 of 0 — full')
})

it('says of what a limit is, and which of them is the fullest', () => {
  render(<QuotaBars owner="project" quotas={[quota('roles', 2, 8, { per: 'branch', fullest: 'br-1' })]} />)
  expect(item('Roles of a branch')).toHaveTextContent('2 of 8')
  expect(item('Roles of a branch')).toHaveTextContent('the most: br-1')
})

it('shows those of the project and of the account', async () => {
  vi.mocked(client.GET).mockImplementation(((path: string) =>
    Promise.resolve({
      quotas: path.includes('project_id') ? [quota('branches', 1, 2, { per: 'project' })] : [quota('projects', 1, 5)],
    })) as never)
  render(
    <QueryClientProvider client={new QueryClient()}>
      <Quotas projectId="p-1" />
    </QueryClientProvider>,
  )
  expect(within(await screen.findByRole('list', { name: 'Quotas of the project' })).getByText('1 of 2')).toBeVisible()
  expect(within(await screen.findByRole('list', { name: 'Quotas of the account' })).getByText('1 of 5')).toBeVisible()
})
