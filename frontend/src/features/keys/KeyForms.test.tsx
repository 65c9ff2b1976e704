import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { afterEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import { expectAccessible } from '~/test-accessible'
import { ToastProvider } from '~/ui/Toast'

import { KeyDialogs } from './KeyForms'

vi.mock('~/api/client', () => ({ client: { POST: vi.fn() }, unwrap: (answer: unknown) => answer }))
afterEach(cleanup)

it('shows a new key once, and not before it is made', async () => {
  vi.mocked(client.POST).mockResolvedValue({ id: 7, name: 'ci', key: 'weir_of-the-test' } as never)
  const user = userEvent.setup()
  const onClose = vi.fn()
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ToastProvider>
        <KeyDialogs ask={{ what: 'create' }} onClose={onClose} />
      </ToastProvider>
    </QueryClientProvider>,
  )
  await user.type(screen.getByLabelText('Name'), ' ci ')
  await user.click(screen.getByRole('button', { name: 'Create key' }))
  expect(await screen.findByText('weir_of-the-test')).toBeInTheDocument()
  expect(client.POST).toHaveBeenCalledWith(expect.anything(), { body: { key_name: 'ci' } })
  await expectAccessible()
  expect(onClose).not.toHaveBeenCalled()
  await user.click(screen.getByRole('button', { name: 'Done' }))
  expect(onClose).toHaveBeenCalledOnce()
})
