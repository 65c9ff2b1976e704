import { cleanup, render, screen } from '@testing-library/react'
import { afterEach, expect, it } from 'vitest'

import { Button } from './Button'
import { type Needs, Permission } from './permission'

afterEach(cleanup)

const button = () => screen.getByRole('button', { name: 'Go' })

it('is disabled with the reason for which the person may not, before any other', () => {
  const mayOnly = (allowed: Needs) => (needs: Needs) => (needs === allowed ? null : 'You are a viewer here.')
  render(
    <Permission value={mayOnly('works')}>
      <Button needs="decides" disabledReason="It is busy.">
        Go
      </Button>
    </Permission>,
  )
  expect(button()).toBeDisabled()
  expect(button()).toHaveAttribute('title', 'You are a viewer here.')
  cleanup()

  render(
    <Permission value={mayOnly('works')}>
      <Button needs="works" disabledReason="It is busy.">
        Go
      </Button>
    </Permission>,
  )
  expect(button()).toHaveAttribute('title', 'It is busy.')
})

it('is for everybody where nothing is known of who uses it, or nothing is needed', () => {
  render(<Button needs="runs">Go</Button>)
  expect(button()).toBeEnabled()
  cleanup()
  render(
    <Permission value={() => 'Nobody may.'}>
      <Button>Go</Button>
    </Permission>,
  )
  expect(button()).toBeEnabled()
})
