import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen, within } from '@testing-library/react'
import { afterEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import { ApiError } from '~/api/errors'
import type { BranchDurability, ChosenLevel } from '~/api/types'

import { ChosenLevels } from './ChosenLevels'
import { DurabilityTable } from './DurabilityTable'
import { LEVELS } from './levels'

vi.mock('~/api/client', () => ({ client: { GET: vi.fn() }, unwrap: (answer: unknown) => answer }))
const get = vi.mocked(client.GET)

afterEach(cleanup)

function show() {
  render(
    <QueryClientProvider client={new QueryClient({ defaultOptions: { queries: { retry: false } } })}>
      <ChosenLevels computeId="ep-1" />
    </QueryClientProvider>,
  )
}

it('marks who is below the policy and who is merely weaker', async () => {
  const chosen: ChosenLevel[] = [
    { role: 'batch', database: null, synchronous_commit: 'off', level: 'off', weaker: true, forbidden: true },
    {
      role: 'reports',
      database: 'ledger',
      synchronous_commit: 'remote_write',
      level: 'receive',
      weaker: true,
      forbidden: false,
    },
    {
      role: null,
      database: 'ledger',
      synchronous_commit: 'remote_apply',
      level: 'apply',
      weaker: false,
      forbidden: false,
    },
  ]
  get.mockResolvedValue({ compute_id: 'ep-1', chosen, more: true } as never)
  show()
  const rows = (await screen.findAllByRole('row')).slice(1).map((row) =>
    within(row)
      .getAllByRole('cell')
      .map((cell) => cell.textContent),
  )
  expect(rows.map((row) => [row[0], row[1], row[3]])).toEqual([
    ['batch', 'all', 'below the policy'],
    ['reports', 'ledger', 'weaker than the branch'],
    ['all roles', 'ledger', 'as strong or stronger'],
  ])
  expect(screen.getByText(/There are more/)).toBeInTheDocument()
})

it('says so when nobody has chosen, and when it is not known', async () => {
  get.mockResolvedValue({ compute_id: 'ep-1', chosen: [], more: false } as never)
  show()
  expect(screen.getByRole('status')).toHaveTextContent('Loading')
  expect(await screen.findByText(/No role and no database/)).toBeInTheDocument()
  cleanup()
  get.mockRejectedValue(new ApiError(503, 'DEPENDENCY_UNAVAILABLE', 'not known now'))
  show()
  expect(await screen.findByRole('alert')).toHaveTextContent('not known now')
})

it('says in words what each level survives', () => {
  const levels = LEVELS.map((level) => ({
    level,
    synchronous_commit: '',
    forbidden_by: level === 'off' ? ('project' as const) : null,
  }))
  const durability: BranchDurability = { branch_id: 'br', level: 'off', effective: 'receive', levels }
  render(<DurabilityTable durability={durability} />)
  const rows = screen
    .getAllByRole('row')
    .slice(1)
    .map((row) =>
      within(row)
        .getAllByRole('cell')
        .map((cell) => cell.textContent),
    )
  expect(rows.map((row) => row[0])).toEqual(['Offchosenforbidden', 'Receivein effect', 'Flush', 'Apply'])
  expect(rows.map((row) => row.slice(2, 6))).toEqual([
    Array<string>(4).fill('can be lost'),
    ['kept', 'kept while a machine that has it votes', 'can be lost', 'kept while a machine that has it votes'],
    Array<string>(4).fill('kept'),
    Array<string>(4).fill('kept'),
  ])
})
