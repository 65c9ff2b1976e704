import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen, waitFor } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import { ApiError } from '~/api/errors'
import type { Branch, BranchDurability, DurabilityLevel } from '~/api/types'
import { ToastProvider } from '~/ui/Toast'

import { BranchDurabilityForm } from './BranchDurabilityForm'
import { LEVELS } from './levels'

vi.mock('~/api/client', () => ({ client: { PATCH: vi.fn() }, unwrap: (answer: unknown) => answer }))
const patch = vi.mocked(client.PATCH)

beforeEach(() => {
  patch.mockReset().mockResolvedValue({} as never)
})
afterEach(cleanup)

function show(level: DurabilityLevel, forbid: DurabilityLevel[] = [], effective: DurabilityLevel = level) {
  const onClose = vi.fn()
  const durability: BranchDurability = {
    branch_id: 'br-1',
    level,
    effective,
    levels: LEVELS.map((each) => ({
      level: each,
      synchronous_commit: '',
      forbidden_by: forbid.includes(each) ? 'project' : null,
    })),
  }
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ToastProvider>
        <BranchDurabilityForm
          projectId="p"
          branch={{ id: 'br-1', name: 'main' } as Branch}
          durability={durability}
          onClose={onClose}
        />
      </ToastProvider>
    </QueryClientProvider>,
  )
  return onClose
}

const sent = () =>
  patch.mock.calls.map(
    (call) => (call[1] as unknown as { body: { branch: { durability: string } } }).body.branch.durability,
  )

it('changes to a stronger level without further ado', async () => {
  const user = userEvent.setup()
  const onClose = show('flush')
  expect(screen.getByRole('radio', { name: /^Flush/ })).toBeChecked()
  expect(screen.getByRole('button', { name: 'Change level' })).toBeDisabled()
  await user.click(screen.getByRole('radio', { name: /^Apply/ }))
  expect(screen.queryByRole('textbox')).not.toBeInTheDocument()
  await user.click(screen.getByRole('button', { name: 'Change level' }))
  await waitFor(() => {
    expect(onClose).toHaveBeenCalled()
  })
  expect(sent()).toEqual(['apply'])
})

it('weakens only once the name is typed, and says what is given up', async () => {
  const user = userEvent.setup()
  show('flush')
  await user.click(screen.getByRole('radio', { name: /^Receive/ }))
  expect(screen.getByText(/all machines lose power/)).toBeInTheDocument()
  const weaken = screen.getByRole('button', { name: 'Weaken' })
  expect(weaken).toBeDisabled()
  await user.type(screen.getByRole('textbox'), 'mai{Enter}')
  expect(sent()).toEqual([])
  await user.type(screen.getByRole('textbox'), 'n')
  expect(weaken).toBeEnabled()
  await user.click(weaken)
  await waitFor(() => {
    expect(sent()).toEqual(['receive'])
  })
})

it('is operated by the keyboard alone', async () => {
  const user = userEvent.setup()
  show('flush')
  screen.getByRole('radio', { name: /^Flush/ }).focus()
  await user.keyboard('{ArrowDown}')
  expect(screen.getByRole('radio', { name: /^Apply/ })).toBeChecked()
  await user.keyboard('{Tab}{Tab}{Enter}')
  await waitFor(() => {
    expect(sent()).toEqual(['apply'])
  })
})

it('does not offer what a policy forbids, and says whose it is', () => {
  show('off', ['off', 'receive'], 'flush')
  for (const name of [/^Off/, /^Receive/]) expect(screen.getByRole('radio', { name })).toBeDisabled()
  expect(screen.getAllByText('Forbidden by the policy of the project.')).toHaveLength(2)
})

it('stays open with what was chosen when the server refuses', async () => {
  patch.mockRejectedValue(new ApiError(423, 'PROJECT_BUSY', 'project p is busy'))
  const user = userEvent.setup()
  const onClose = show('flush')
  await user.click(screen.getByRole('radio', { name: /^Apply/ }))
  await user.click(screen.getByRole('button', { name: 'Change level' }))
  expect(await screen.findByText(/project p is busy/)).toBeInTheDocument()
  expect(onClose).not.toHaveBeenCalled()
  expect(screen.getByRole('radio', { name: /^Apply/ })).toBeChecked()
})
