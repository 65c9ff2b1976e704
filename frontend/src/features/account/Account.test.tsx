import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen, waitFor, within } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import type { ReactNode } from 'react'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import { ApiError } from '~/api/errors'
import type { SessionUser } from '~/api/types'
import { expectAccessible } from '~/test-accessible'
import { qrCode } from '~/ui/qr-code'
import { ToastProvider } from '~/ui/Toast'

import { OwnSessions } from './OwnSessions'
import { passwordErrors, PasswordForm } from './PasswordForm'
import { grouped, SecondFactorEnd, SecondFactorSetUp } from './SecondFactorForms'
import { SecurityCard } from './SecurityCard'

vi.mock('~/api/client', () => ({
  client: { GET: vi.fn(), POST: vi.fn(), PUT: vi.fn(), DELETE: vi.fn() },
  unwrap: (answer: unknown) => answer,
}))

beforeEach(() => {
  for (const method of [client.GET, client.POST, client.PUT, client.DELETE]) {
    vi.mocked(method).mockReset()
    vi.mocked(method).mockResolvedValue({} as never)
  }
})
afterEach(cleanup)

function show(what: ReactNode) {
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ToastProvider>{what}</ToastProvider>
    </QueryClientProvider>,
  )
  return userEvent.setup()
}

const refused = (status: number, code: string, retryAfter?: number) =>
  new ApiError(status, code, `as the API says: ${code}`, undefined, retryAfter)

it('changes the password with the old one, and with a code where there is a second factor', async () => {
  const onClose = vi.fn()
  const user = show(<PasswordForm secondFactor onClose={onClose} />)
  await user.type(screen.getByLabelText('Your password'), 'the old password')
  await user.type(screen.getByLabelText('Code'), ' 123456 ')
  await user.type(screen.getByLabelText('New password'), 'another long one')
  await user.type(screen.getByLabelText('The same again'), 'another long one')
  await expectAccessible()
  vi.mocked(client.PUT).mockRejectedValueOnce(refused(401, 'UNAUTHORIZED'))
  await user.click(screen.getByRole('button', { name: 'Change password' }))
  expect(await screen.findByRole('alert')).toHaveTextContent('not right')
  expect(onClose).not.toHaveBeenCalled()
  await user.click(screen.getByRole('button', { name: 'Change password' }))
  await waitFor(() => {
    expect(onClose).toHaveBeenCalledOnce()
  })
  expect(client.PUT).toHaveBeenLastCalledWith('/api/v2/auth/password', {
    body: { password: 'the old password', code: '123456', new_password: 'another long one' },
  })
})

it('says before it asks what is wrong with a new password', () => {
  expect(passwordErrors({ newPassword: '', again: '' })).toBeUndefined()
  expect(passwordErrors({ newPassword: 'short', again: '' })?.fields.newPassword).toContain('12 characters')
  expect(passwordErrors({ newPassword: 'long enough to do', again: 'long' })?.fields.again).toBeDefined()
  expect(passwordErrors({ newPassword: 'long enough to do', again: 'long enough to do' })).toBeUndefined()
})

it('asks for no code where there is no second factor, and waits as long as it is told to', async () => {
  const user = show(<PasswordForm secondFactor={false} onClose={vi.fn()} />)
  expect(screen.queryByLabelText('Code')).toBeNull()
  await user.type(screen.getByLabelText('Your password'), 'guess')
  await user.type(screen.getByLabelText('New password'), 'another long one')
  await user.type(screen.getByLabelText('The same again'), 'another long one')
  vi.mocked(client.PUT).mockRejectedValueOnce(refused(429, 'TOO_MANY_ATTEMPTS', 60))
  await user.click(screen.getByRole('button', { name: 'Change password' }))
  expect(await screen.findByRole('alert')).toHaveTextContent('Too many attempts')
  expect(screen.getByRole('button', { name: /^Change password, in \d+ s$/ })).toBeDisabled()
})

it('sets a second factor up, and lets nobody lose the recovery codes by a key', async () => {
  const onClose = vi.fn()
  const user = show(<SecondFactorSetUp onClose={onClose} />)
  vi.mocked(client.POST).mockResolvedValueOnce({
    secret: 'ABCDEFGHIJ',
    uri: 'otpauth://totp/Weir:ada?secret=ABCDEFGHIJ',
  } as never)
  await user.type(screen.getByLabelText('Your password'), 'the password')
  await user.click(screen.getByRole('button', { name: 'Continue' }))
  expect(await screen.findByText('ABCD EFGH IJ')).toBeInTheDocument()
  const code = screen.getByRole('img', { name: /^QR code of the secret/ })
  expect(code.querySelector('path')).toHaveAttribute('d', qrCode('otpauth://totp/Weir:ada?secret=ABCDEFGHIJ').path)
  await user.click(screen.getByRole('button', { name: 'Copy secret' }))
  expect(await navigator.clipboard.readText()).toBe('ABCDEFGHIJ')
  expect(await screen.findByRole('button', { name: 'secret copied' })).toBeInTheDocument()
  expect(screen.getByRole('link', { name: /on this device/ })).toHaveAttribute(
    'href',
    'otpauth://totp/Weir:ada?secret=ABCDEFGHIJ',
  )
  await expectAccessible()

  vi.mocked(client.POST).mockRejectedValueOnce(refused(400, 'BAD_REQUEST'))
  await user.type(screen.getByLabelText('Code'), '111111')
  await user.click(screen.getByRole('button', { name: 'Confirm' }))
  expect(await screen.findByRole('alert')).toHaveTextContent('BAD_REQUEST')

  vi.mocked(client.POST).mockResolvedValueOnce({ recovery_codes: ['AAAA-BBBB', 'CCCC-DDDD'] } as never)
  await user.click(screen.getByRole('button', { name: 'Confirm' }))
  const codes = await screen.findByRole('list', { name: 'Recovery codes' })
  expect(within(codes).getAllByRole('listitem')).toHaveLength(2)
  await expectAccessible()
  await user.keyboard('{Escape}')
  expect(onClose).not.toHaveBeenCalled()
  await user.click(screen.getByRole('button', { name: 'I have kept them' }))
  expect(onClose).toHaveBeenCalledOnce()
})

it('shows a secret in groups of four', () => {
  expect(grouped('ABCDEFGHIJ')).toBe('ABCD EFGH IJ')
  expect(grouped('ABCDEFGH')).toBe('ABCD EFGH')
})

it('ends a second factor with password and code', async () => {
  const onClose = vi.fn()
  const user = show(<SecondFactorEnd onClose={onClose} />)
  await user.type(screen.getByLabelText('Your password'), 'the password')
  await user.type(screen.getByLabelText('Code'), '123456')
  await user.click(screen.getByRole('button', { name: 'End second factor' }))
  await waitFor(() => {
    expect(onClose).toHaveBeenCalledOnce()
  })
  expect(client.POST).toHaveBeenCalledWith('/api/v2/auth/totp/end', {
    body: { password: 'the password', code: '123456' },
  })
})

const user = (person: SessionUser['person']): SessionUser => ({
  id: 'u-1',
  name: 'ada@example.org',
  email: 'ada@example.org',
  operator: false,
  organization_id: 'o-1',
  role: 'owner',
  person,
  project_id: null,
  read_only: false,
})

it('offers what the person can change, and says why where they cannot', () => {
  const card = (person: SessionUser['person']) => show(<SecurityCard user={user(person)} onAsk={vi.fn()} />)
  card({ name: 'Ada', has_password: true, second_factor: true })
  expect(screen.getByRole('button', { name: 'End second factor' })).toBeEnabled()
  cleanup()
  card({ name: 'Ada', has_password: false, second_factor: false })
  expect(screen.getByRole('button', { name: 'Change password' })).toBeDisabled()
  expect(screen.getByText(/identity provider/)).toBeInTheDocument()
  cleanup()
  card(null)
  expect(screen.getByRole('button', { name: 'Set up second factor' })).toHaveAttribute(
    'title',
    expect.stringContaining('You signed in with an API key.'),
  )
})

it('ends another session, all others, and never the one that is used', async () => {
  const at = '2026-01-02T03:04:05Z'
  const session = (id: string, current = false) => ({
    id,
    address: `192.0.2.${id}`,
    current,
    created_at: at,
    last_seen_at: at,
    expires_at: at,
  })
  vi.mocked(client.GET).mockResolvedValue({ sessions: [session('1', true), session('2'), session('3')] } as never)
  const person = show(<OwnSessions />)
  expect(await screen.findByRole('button', { name: /End the session from 192.0.2.1/ })).toBeDisabled()
  await expectAccessible()
  await person.click(screen.getByRole('button', { name: /End the session from 192.0.2.2/ }))
  expect(client.DELETE).toHaveBeenCalledExactlyOnceWith('/api/v2/auth/sessions/{session_id}', {
    params: { path: { session_id: '2' } },
  })
  // One that has ended meanwhile keeps none of the others.
  vi.mocked(client.DELETE).mockReset()
  vi.mocked(client.DELETE)
    .mockRejectedValueOnce(refused(404, 'NOT_FOUND'))
    .mockResolvedValue({} as never)
  await person.click(screen.getByRole('button', { name: 'End all others' }))
  await waitFor(() => {
    expect(client.DELETE).toHaveBeenCalledTimes(2)
  })
  expect(client.DELETE).toHaveBeenLastCalledWith(expect.anything(), { params: { path: { session_id: '3' } } })
})
