import { cleanup, render, screen, within } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { afterEach, expect, it, vi } from 'vitest'

import { expectAccessible } from '~/test-accessible'

import { type Column, Table } from './Table'

afterEach(cleanup)

type Node = { name: string; held: number | null }

const NODES: Node[] = [
  { name: 'node 10', held: 3 },
  { name: 'node 9', held: null },
  { name: 'Node 2', held: 12 },
]
const COLUMNS: Column<Node>[] = [
  { key: 'name', header: 'Node', sort: (row) => row.name, cell: (row) => row.name },
  { key: 'held', header: 'Held', numeric: true, sort: (row) => row.held, cell: (row) => row.held ?? '—' },
  { key: 'note', header: 'Note', cell: () => 'none' },
]

function show(rows = NODES, partial = false) {
  render(
    <Table
      caption="Nodes"
      rows={rows}
      columns={COLUMNS}
      rowKey={(row) => row.name}
      empty="None."
      partial={partial}
    />,
  )
}

const names = () =>
  screen
    .getAllByRole('row')
    .slice(1)
    .map((row) => within(row).getAllByRole('cell')[0]?.textContent)
const sorts = () => screen.getAllByRole('columnheader').map((head) => head.getAttribute('aria-sort'))

it('keeps the order of its rows until somebody sorts, and goes back to it', async () => {
  const user = userEvent.setup()
  show()
  expect(names()).toEqual(['node 10', 'node 9', 'Node 2'])
  expect(sorts()).toEqual([null, null, null])
  const head = screen.getByRole('button', { name: 'Node' })
  await user.click(head)
  expect(names()).toEqual(['Node 2', 'node 9', 'node 10'])
  expect(sorts()).toEqual(['ascending', null, null])
  await user.click(head)
  expect(names()).toEqual(['node 10', 'node 9', 'Node 2'])
  expect(sorts()).toEqual(['descending', null, null])
  await user.click(head)
  expect(sorts()).toEqual([null, null, null])
})

it('sorts by keyboard: the largest first, and what is not known last either way', async () => {
  const user = userEvent.setup()
  show()
  // First the region, which scrolls, then the heads that sort; the third column has no button.
  await user.tab()
  await user.tab()
  await user.tab()
  expect(screen.getByRole('button', { name: 'Held' })).toHaveFocus()
  await user.keyboard('{Enter}')
  expect(names()).toEqual(['Node 2', 'node 10', 'node 9'])
  await user.keyboard(' ')
  expect(names()).toEqual(['node 10', 'Node 2', 'node 9'])
  expect(sorts()).toEqual([null, 'ascending', null])
  expect(screen.queryByRole('button', { name: 'Note' })).not.toBeInTheDocument()
  await expectAccessible()
})

it('says that it has sorted only the rows it has', async () => {
  const user = userEvent.setup()
  show(NODES, true)
  expect(screen.queryByRole('status')).not.toBeInTheDocument()
  await user.click(screen.getByRole('button', { name: 'Held' }))
  expect(screen.getByRole('status')).toHaveTextContent('Sorted among the 3 shown; there are more.')
})

it('sorts rows that are out of sight as well', async () => {
  // Nothing has a size here: the box that scrolls and each of its rows are given one.
  const box = vi.spyOn(Element.prototype, 'clientHeight', 'get').mockReturnValue(600)
  const row = vi.spyOn(HTMLElement.prototype, 'offsetHeight', 'get').mockReturnValue(41)
  const user = userEvent.setup()
  show(Array.from({ length: 500 }, (_, index) => ({ name: `node ${String(index)}`, held: index })))
  await user.click(screen.getByRole('button', { name: 'Held' }))
  const region = screen.getByRole('region', { name: 'Nodes' })
  expect(within(region).getAllByRole('row').length).toBeLessThan(100)
  expect(within(region).getByText('node 499')).toBeInTheDocument()
  box.mockRestore()
  row.mockRestore()
})
