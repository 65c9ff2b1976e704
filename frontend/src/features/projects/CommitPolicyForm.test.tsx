import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen, waitFor } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import type { Branch, DurabilityLevel, Project } from '~/api/types'
import { ToastProvider } from '~/ui/Toast'

import { CommitPolicyForm } from './CommitPolicyForm'

vi.mock('~/api/client', () => ({ client: { PATCH: vi.fn() }, unwrap: (answer: unknown) => answer }))
const patch = vi.mocked(client.PATCH)

beforeEach(() => {
  patch.mockReset().mockResolvedValue({} as never)
})
afterEach(cleanup)

function show(forbid: string[], levels: DurabilityLevel[]) {
  const project = {
    id: 'p',
    name: 'shop',
    settings: forbid.length > 0 ? { durability: { forbid } } : {},
  } as unknown as Project
  const branches = levels.map(
    (durability, index) => ({ id: `br-${String(index)}`, name: `branch ${String(index)}`, durability }) as Branch,
  )
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ToastProvider>
        <CommitPolicyForm project={project} branches={branches} onClose={vi.fn()} />
      </ToastProvider>
    </QueryClientProvider>,
  )
}

const sent = () => patch.mock.calls.map((call) => (call[1] as unknown as { body: { project: unknown } }).body.project)

it('forbids weak levels, and names the branches that are given more from then on', async () => {
  const user = userEvent.setup()
  show([], ['off', 'flush'])
  expect(screen.getByRole('button', { name: 'Change policy' })).toBeDisabled()
  await user.click(screen.getByRole('checkbox', { name: /Forbid Off/ }))
  expect(screen.getByText(/branch 0 Receive in place of Off/)).toBeInTheDocument()
  await user.click(screen.getByRole('checkbox', { name: /Forbid Receive/ }))
  expect(screen.getByText(/branch 0 Flush in place of Off/)).toBeInTheDocument()
  await user.click(screen.getByRole('button', { name: 'Change policy' }))
  await waitFor(() => {
    expect(sent()).toEqual([{ settings: { durability: { forbid: ['off', 'receive'] } } }])
  })
})

it('warns of branches whose weaker level takes effect again', async () => {
  const user = userEvent.setup()
  show(['off', 'receive'], ['receive', 'apply'])
  await user.click(screen.getByRole('checkbox', { name: /Forbid Receive/ }))
  expect(
    screen.getByText(/branch 0 \(Receive\): the weaker level that was chosen takes effect again/),
  ).toBeInTheDocument()
  await user.click(screen.getByRole('button', { name: 'Change policy' }))
  await waitFor(() => {
    expect(sent()).toEqual([{ settings: { durability: { forbid: ['off'] } } }])
  })
})
