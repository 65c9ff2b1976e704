import { cleanup, render, screen, waitFor } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { useState } from 'react'
import { afterEach, expect, it } from 'vitest'

import { Dialog } from './Dialog'

afterEach(cleanup)

type Step = 'none' | 'first' | 'second'

/** A row that opens a dialog, of which the next step is another dialog; `Remove` takes the row with it. */
function Page() {
  const [step, setStep] = useState<Step>('none')
  const [row, setRow] = useState(true)
  const to = (next: Step) => () => {
    setStep(next)
  }
  return (
    <main tabIndex={-1}>
      <section tabIndex={-1} aria-label="Rows">
        {row && <button onClick={to('first')}>Open</button>}
      </section>
      {step === 'first' && (
        <Dialog key="first" title="First" onClose={to('none')}>
          <button onClick={to('second')}>Next</button>
          <button
            onClick={() => {
              setRow(false)
              setStep('none')
            }}
          >
            Remove
          </button>
        </Dialog>
      )}
      {step === 'second' && (
        <Dialog key="second" title="Second" onClose={to('none')}>
          <button>Inside</button>
        </Dialog>
      )}
    </main>
  )
}

async function opened() {
  const user = userEvent.setup()
  render(<Page />)
  await user.click(screen.getByRole('button', { name: 'Open' }))
  return user
}

const focused = async (role: string, name?: string) => {
  await waitFor(() => {
    expect(screen.getByRole(role, name === undefined ? {} : { name })).toHaveFocus()
  })
}

it('gives the keyboard back to what opened it', async () => {
  const user = await opened()
  await focused('button', 'Next')
  await user.keyboard('{Escape}')
  await focused('button', 'Open')
})

it('gives the keyboard to the nearest place where what opened it is gone', async () => {
  const user = await opened()
  await user.click(screen.getByRole('button', { name: 'Remove' }))
  await focused('region', 'Rows')
})

it('leaves the keyboard to the dialog that takes its place, and to the page after that', async () => {
  const user = await opened()
  await user.click(screen.getByRole('button', { name: 'Next' }))
  await focused('button', 'Inside')
  // What closes the first comes a moment later.
  await new Promise((resolve) => setTimeout(resolve, 20))
  await focused('button', 'Inside')
  await user.keyboard('{Escape}')
  await focused('main')
})
