import { expect, it, vi } from 'vitest'

import { ApiError } from '~/api/errors'
import { createQueryClient } from '~/api/query-client'

import { leadToSignIn } from './signed-out'

/** Where somebody is led who is on a page when the API says that nobody is signed in. */
async function led(href: string) {
  const navigate = vi.fn()
  const router = { state: { location: { pathname: href.replace(/[?#].*/, ''), href } }, navigate }
  const queryClient = createQueryClient(() => {
    leadToSignIn(router)
  })
  const queryFn = () => Promise.reject(new ApiError(401, 'UNAUTHORIZED', 'nobody is signed in'))
  await expect(queryClient.fetchQuery({ queryKey: ['session'], queryFn, retry: false })).rejects.toThrow()
  return navigate.mock.calls as unknown[][]
}

it('leads to the page for signing in, and back', async () => {
  expect(await led('/organization?x=1')).toEqual([[{ to: '/login', search: { then: '/organization?x=1' } }]])
  expect(await led('/')).toEqual([[{ to: '/login', search: { then: '/' } }]])
})

it.each(['/login', '/login?then=/x', '/accept-invitation#token', '/accept-invitation/#token'])(
  'leaves alone whoever may be on %s without signing in',
  async (href) => {
    expect(await led(href)).toEqual([])
  },
)
