import { cleanup, render, screen, waitFor } from '@testing-library/react'
import userEvent from '@testing-library/user-event'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'

import { expectAccessible } from '~/test-accessible'

import { SignInForm } from './SignInForm'

const { post } = vi.hoisted(() => ({ post: vi.fn() }))
vi.mock('openapi-fetch', () => ({ default: () => ({ POST: post }) }))

const answer = (status: number, code = '', headers: Record<string, string> = {}) => ({
  error: code ? { code, message: `as the API says: ${code}`, request_id: 'r-1' } : undefined,
  response: new Response(null, { status, headers }),
})

beforeEach(() => post.mockReset())
afterEach(cleanup)

async function typed() {
  const onSignedIn = vi.fn()
  const user = userEvent.setup()
  render(<SignInForm onSignedIn={onSignedIn} />)
  await user.type(screen.getByLabelText('Email'), 'ada@example.org')
  await user.type(screen.getByLabelText('Password'), ' a password ')
  await user.click(screen.getByRole('button', { name: 'Sign in' }))
  return { onSignedIn, user }
}

it('signs in with email and password, which is taken as it is typed', async () => {
  post.mockResolvedValue(answer(204))
  const { onSignedIn } = await typed()
  await waitFor(() => {
    expect(onSignedIn).toHaveBeenCalledOnce()
  })
  expect(post).toHaveBeenCalledWith('/api/v2/auth/sign_in', {
    body: { email: 'ada@example.org', password: ' a password ' },
  })
})

it('asks for a code only where one is needed, with the keyboard on it', async () => {
  post.mockResolvedValueOnce(answer(401, 'CODE_REQUIRED')).mockResolvedValueOnce(answer(401, 'UNAUTHORIZED'))
  const { onSignedIn, user } = await typed()
  const code = await screen.findByLabelText('Code')
  expect(code).toHaveFocus()
  expect(screen.queryByRole('alert')).toBeNull()
  await expectAccessible()

  await user.type(code, '000000{Enter}')
  expect(await screen.findByRole('alert')).toHaveTextContent('counts once')
  expect(code).toHaveValue('')
  expect(onSignedIn).not.toHaveBeenCalled()

  post.mockResolvedValueOnce(answer(204))
  await user.click(screen.getByRole('button', { name: 'Use a recovery code' }))
  expect(screen.getByLabelText('Recovery code')).toHaveFocus()
  await user.type(screen.getByLabelText('Recovery code'), 'abcd-efgh{Enter}')
  await waitFor(() => {
    expect(onSignedIn).toHaveBeenCalledOnce()
  })
  expect(post).toHaveBeenLastCalledWith('/api/v2/auth/sign_in', {
    body: { email: 'ada@example.org', password: ' a password ', code: 'abcd-efgh' },
  })
})

it('goes back to email and password, and forgets the password', async () => {
  post.mockResolvedValueOnce(answer(401, 'CODE_REQUIRED'))
  const { user } = await typed()
  await user.click(await screen.findByRole('button', { name: 'Not you?' }))
  expect(screen.getByLabelText('Email')).toHaveValue('ada@example.org')
  expect(screen.getByLabelText('Password')).toHaveValue('')
})

it('says what is wrong and leaves what was typed', async () => {
  post.mockResolvedValueOnce(answer(401, 'UNAUTHORIZED'))
  const { onSignedIn } = await typed()
  expect(await screen.findByRole('alert')).toHaveTextContent('The email or the password is not right.')
  expect(screen.getByLabelText('Email')).toHaveValue('ada@example.org')
  expect(onSignedIn).not.toHaveBeenCalled()
  await expectAccessible()
})

it('counts down while it is slowed, and lets nobody try before', async () => {
  post.mockResolvedValueOnce(answer(429, 'TOO_MANY_ATTEMPTS', { 'Retry-After': '2' }))
  const { user } = await typed()
  expect(await screen.findByRole('alert')).toHaveTextContent('Too many attempts')
  const button = screen.getByRole('button', { name: /^Sign in, in \d s$/ })
  expect(button).toBeDisabled()
  await user.type(screen.getByLabelText('Password'), '{Enter}')
  expect(post).toHaveBeenCalledOnce()
  expect(await screen.findByRole('button', { name: 'Sign in' })).toBeEnabled()
  expect(screen.getByRole('alert')).toHaveTextContent('You can try again now.')
})
