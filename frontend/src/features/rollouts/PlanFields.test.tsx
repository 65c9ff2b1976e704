import { cleanup, render, screen, within } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { afterEach, expect, it } from 'vitest'

import { useAppForm, wrong } from '~/shared/form'
import { expectAccessible } from '~/test-accessible'

import { marks, readForm } from './plan-body'
import { DEFAULT_FORM } from './plan-form'
import { FreezeFields } from './PlanCareFields'
import { WavesFields } from './PlanFields'

afterEach(cleanup)

/** What the editor would send, as text below its fields. */
function Editor() {
  const form = useAppForm({
    defaultValues: DEFAULT_FORM,
    validators: { onChange: ({ value }) => wrong(marks(value, readForm(value).errors)) },
  })
  return (
    <>
      <WavesFields form={form} />
      <FreezeFields form={form} />
      <form.Subscribe selector={(state) => state.values}>
        {(values) => <output>{JSON.stringify(readForm(values).body.strategy)}</output>}
      </form.Subscribe>
    </>
  )
}

const sent = () => JSON.parse(screen.getByRole('status').textContent) as { waves: unknown; freeze_windows: unknown }
const amounts = () => screen.getAllByLabelText('Amount')

it('keeps what is typed in a wave, and what is wrong with it, while others go', async () => {
  const user = userEvent.setup()
  render(<Editor />)
  await user.clear(screen.getByDisplayValue('25'))
  expect(screen.getByRole('alert')).toHaveTextContent('A number above 0 to 100 per cent.')
  await user.click(screen.getByRole('button', { name: 'Remove wave 1 %' }))
  await user.click(screen.getByRole('button', { name: 'Remove wave 5 %' }))
  expect(amounts().map((field) => field.getAttribute('aria-invalid'))).toEqual(['false', 'true', 'false'])
  await user.type(amounts()[1] as HTMLElement, '30')
  expect(screen.queryByRole('alert')).not.toBeInTheDocument()
  expect(sent().waves).toEqual([
    { count: 1, name: 'canary' },
    { percent: 30, name: '25 %' },
    { percent: 100, name: 'everyone' },
  ])
})

it('marks a weekly freeze that has no day, and leaves the next one as it is when it is removed', async () => {
  const user = userEvent.setup()
  render(<Editor />)
  await user.click(screen.getByRole('button', { name: 'Weekly freeze' }))
  const first = within(screen.getByRole('group', { name: /^Freeze 1/ }))
  await user.click(first.getByLabelText('Sat'))
  await user.click(first.getByLabelText('Sun'))
  expect(first.getByRole('alert')).toHaveTextContent('Choose at least one day.')
  await user.click(screen.getByRole('button', { name: 'Weekly freeze' }))
  await user.type(within(screen.getByRole('group', { name: /^Freeze 2/ })).getByLabelText('Why'), 'weekend')
  await user.click(screen.getByRole('button', { name: 'Remove freeze 1' }))
  expect(screen.queryByRole('alert')).not.toBeInTheDocument()
  expect(sent().freeze_windows).toEqual([
    { weekdays: [6, 7], start_time: '00:00', end_time: '00:00', reason: 'weekend' },
  ])
  await expectAccessible()
})
