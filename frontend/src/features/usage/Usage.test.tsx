import { cleanup, render, screen, within } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import type { ReactNode } from 'react'
import { afterEach, expect, it, vi } from 'vitest'

import type { ConsumptionTimeframe, ProjectConsumption } from '~/api/types'
import { expectAccessible } from '~/test-accessible'

import { ProjectsUsage } from './ProjectsUsage'
import { saveText } from './save'
import { Usage } from './Usage'

vi.mock('./save', () => ({ saveText: vi.fn() }))
vi.mock('@tanstack/react-router', () => ({
  Link: ({ children }: { children: ReactNode }) => <a href="/">{children}</a>,
}))
afterEach(() => {
  cleanup()
  vi.mocked(saveText).mockClear()
})

const frame = (start: Date, value: number) =>
  ({
    timeframe_start: start.toISOString(),
    timeframe_end: start.toISOString(),
    active_time_seconds: value,
    compute_time_seconds: 2 * value,
    cpu_time_seconds: 0,
    written_data_bytes: 1024 * value,
    synthetic_storage_size_bytes: 4096,
    data_storage_bytes_hour: 0,
    logical_size_bytes: 4096,
    logical_size_bytes_hour: 0,
  }) satisfies ConsumptionTimeframe

const DAYS = [1, 2, 3].map((day) => new Date(Date.UTC(2026, 10, day)))
const rows = DAYS.map((start, index) => ({
  key: start.toISOString().slice(0, 10),
  start,
  frame: index === 1 ? null : frame(start, 60 * (index + 1)),
}))

it('shows sums, charts and each timeframe, the newest first', async () => {
  render(<Usage rows={rows} file="usage-shop" />)
  expect(screen.getByRole('img', { name: 'WAL written: at most 180 KiB' })).toBeInTheDocument()
  const together = screen.getByRole('region', { name: 'Together' })
  expect(within(together).getByText('4 min')).toBeInTheDocument()
  expect(within(together).getByText('240 KiB')).toBeInTheDocument()
  const body = screen.getAllByRole('row').slice(1)
  expect(body.map((row) => within(row).getAllByRole('cell')[0]?.textContent)).toEqual([
    '2026-11-03',
    '2026-11-02',
    '2026-11-01',
  ])
  expect(within(body[1] as HTMLElement).getAllByText('—')).toHaveLength(5)
  await expectAccessible()
})

it('exports what is shown', async () => {
  render(<Usage rows={rows} file="usage-shop" />)
  await userEvent.setup().click(screen.getByRole('button', { name: 'Export CSV' }))
  const [name, text] = vi.mocked(saveText).mock.calls[0] ?? []
  expect(name).toBe('usage-shop.csv')
  expect(text?.trimEnd().split('\r\n')).toHaveLength(4)
})

it('sums up each project, and links to those that there are', async () => {
  const project = (id: string, deleted: boolean): ProjectConsumption => ({
    project_id: id,
    project_name: `${id}-name`,
    deleted,
    periods: [
      {
        period_id: id,
        period_plan: 'self_hosted',
        period_start: '2026-11-01T00:00:00Z',
        period_end: null,
        consumption: DAYS.map((start) => frame(start, 60)),
      },
    ],
  })
  render(<ProjectsUsage projects={[project('here', false), project('gone', true)]} more={false} file="usage" />)
  expect(screen.getByRole('link', { name: 'here-name' })).toBeInTheDocument()
  expect(screen.getByText('gone-name (gone)')).toBeInTheDocument()
  expect(screen.getAllByText('180 KiB')).toHaveLength(2)
  await userEvent.setup().click(screen.getByRole('button', { name: 'Export CSV' }))
  expect(vi.mocked(saveText).mock.calls[0]?.[1]).toContain('gone,gone-name,360,180,0,184320,0')
  await expectAccessible()
})
