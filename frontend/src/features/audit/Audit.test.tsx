import { cleanup, render, screen, within } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { useState } from 'react'
import { afterEach, expect, it, vi } from 'vitest'

import type { AuditEntry } from '~/api/types'
import { expectAccessible } from '~/test-accessible'

import { AuditEntryDrawer } from './AuditEntryDrawer'
import { AuditFilterFields } from './AuditFilterFields'
import type { AuditFilter } from './queries'
import { parseAudit } from './search'

afterEach(cleanup)

/** As the page does it: what a field has becomes the filter. */
function Fields({ from, onFilter }: { from: AuditFilter; onFilter: (filter: AuditFilter) => void }) {
  const [filter, setFilter] = useState(from)
  return (
    <AuditFilterFields
      filter={filter}
      onChange={(change) => {
        const next = parseAudit({ ...filter, ...change })
        setFilter(next)
        onFilter(next)
      }}
    />
  )
}

it('narrows by kind, and says the same in the field of actions', async () => {
  const onFilter = vi.fn()
  const user = userEvent.setup()
  render(<Fields from={{}} onFilter={onFilter} />)
  expect(screen.getByRole('button', { name: 'Show all' })).toBeDisabled()
  await user.selectOptions(screen.getByLabelText('Kind'), 'api key')
  expect(onFilter).toHaveBeenLastCalledWith({ action: 'api_key.' })
  expect(screen.getByLabelText('Action')).toHaveValue('api_key.')
  await user.type(screen.getByLabelText('Action'), 'revoke')
  expect(onFilter).toHaveBeenLastCalledWith({ action: 'api_key.revoke' })
  expect(screen.getByLabelText('Kind')).toHaveValue('api_key')
  await expectAccessible()
  await user.click(screen.getByRole('button', { name: 'Show all' }))
  expect(onFilter).toHaveBeenLastCalledWith({})
})

it('narrows by time, in the reader’s zone', async () => {
  const onFilter = vi.fn()
  const user = userEvent.setup()
  render(<Fields from={{}} onFilter={onFilter} />)
  await user.type(screen.getByLabelText('From'), '2026-03-01T10:00')
  expect(onFilter).toHaveBeenLastCalledWith({ since: new Date('2026-03-01T10:00').toISOString() })
  expect(screen.getByLabelText('From')).toHaveValue('2026-03-01T10:00')
  await user.click(screen.getByRole('button', { name: 'Show all' }))
  expect(screen.getByLabelText('From')).toHaveValue('')
})

it('shows what was before beside what came after', async () => {
  const entry: AuditEntry = {
    id: 5,
    at: '2026-01-02T03:04:05Z',
    actor: 'ada@example.org',
    action: 'member.update',
    resource: 'user/bob@example.org',
    project_id: null,
    request_id: 'r-1',
    address: '192.0.2.1',
    api_key_id: null,
    detail: { role: 'admin', role_before: 'member', reason: 'asked' },
  }
  const onClose = vi.fn()
  const user = userEvent.setup()
  render(<AuditEntryDrawer entry={entry} onClose={onClose} />)
  const row = within(screen.getByRole('table', { name: 'Before and after' })).getAllByRole('row')[1]
  expect(row).toHaveTextContent('rolememberadmin')
  expect(screen.getByText('What else was asked for')).toBeInTheDocument()
  await expectAccessible()
  await user.keyboard('{Escape}')
  expect(onClose).toHaveBeenCalledOnce()
})
