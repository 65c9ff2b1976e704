import { cleanup, render, screen } from '@testing-library/react'
import { afterEach, expect, it } from 'vitest'

import { expectAccessible } from '~/test-accessible'

import { SchemaDiff } from './SchemaDiff'

afterEach(cleanup)

it('shows both sides, and says what goes and comes to those who see no colours', async () => {
  const diff = '@@ -1,2 +1,2 @@\n CREATE TABLE t (\n-    id integer\n+    id bigint\n'
  render(<SchemaDiff diff={diff} base="main" branch="dev" />)
  expect(screen.getByRole('status')).toHaveTextContent('From main to dev: 1 line goes, 1 comes.')
  expect(screen.getByText('Goes:')).toBeInTheDocument()
  expect(screen.getByText('Comes:')).toBeInTheDocument()
  expect(screen.getAllByText('CREATE TABLE t (')).toHaveLength(2)
  // A keyboard reaches what scrolls.
  expect(screen.getByRole('region', { name: /Schema of main/ })).toHaveAttribute('tabindex', '0')
  await expectAccessible()
})

it('says that nothing differs', () => {
  render(<SchemaDiff diff="" base="main" branch="dev" />)
  expect(screen.getByText('The schemas of main and dev are the same.')).toBeInTheDocument()
})

it('draws of thousands of lines only those in sight', () => {
  const lines = Array.from({ length: 5000 }, (_, index) => `+CREATE TABLE t${String(index)} ();`)
  render(<SchemaDiff diff={`@@ -0,0 +1,5000 @@\n${lines.join('\n')}\n`} base="main" branch="dev" />)
  expect(screen.getByRole('status')).toHaveTextContent('5,000 come')
  expect(screen.getAllByRole('row').length).toBeLessThan(200)
})
