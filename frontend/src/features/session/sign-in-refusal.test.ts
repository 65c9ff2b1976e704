import { expect, it } from 'vitest'

import { ApiError, apiError } from '~/api/errors'

import { signInRefusal } from './sign-in-refusal'

const refused = (status: number, code: string, retryAfter?: string) =>
  apiError(status, { code, message: 'as the API says it', request_id: 'r-1' }, retryAfter ?? null)

it('asks for a code where only that is missing', () => {
  expect(signInRefusal(refused(401, 'CODE_REQUIRED'), 'password', 0)).toEqual({
    text: null,
    next: 'code',
    wait: null,
  })
})

it('says what is wrong, by what was asked for', () => {
  const password = signInRefusal(refused(401, 'UNAUTHORIZED'), 'password', 0)
  expect(password).toMatchObject({ next: 'password', wait: null })
  expect(password.text).toContain('email or the password')
  const code = signInRefusal(refused(401, 'UNAUTHORIZED'), 'code', 0)
  expect(code).toMatchObject({ next: 'code', wait: null })
  expect(code.text).toContain('recovery code')
})

it('knows until when there is no use in trying', () => {
  const slowed = signInRefusal(refused(429, 'TOO_MANY_ATTEMPTS', '16'), 'password', 1_000)
  expect(slowed).toMatchObject({ next: 'password', wait: { from: 1_000, until: 17_000 } })
  // Without a header, or with one that is a date, there is nothing to count down to.
  expect(signInRefusal(refused(429, 'RATE_LIMITED', 'Mon, 1 Jan 2029'), 'password', 0).wait).toBeNull()
  expect(signInRefusal(refused(429, 'RATE_LIMITED'), 'password', 0).text).toContain('as the API says it')
})

it('repeats what the API says of anything else', () => {
  expect(signInRefusal(new ApiError(503, 'X', 'the database is away'), 'code', 0)).toEqual({
    text: 'the database is away',
    next: 'code',
    wait: null,
  })
  expect(signInRefusal(new TypeError('Failed to fetch'), 'password', 0).text).toContain('does not answer')
})
