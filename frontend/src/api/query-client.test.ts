import { MutationObserver } from '@tanstack/react-query'
import { expect, it, vi } from 'vitest'

import { ApiError } from './errors'
import { createQueryClient } from './query-client'

const refused = (status: number) => () => Promise.reject(new ApiError(status, 'X', 'refused'))

it('takes 401 for the end of the session, unless a password or a code was what is wrong', async () => {
  const onSignedOut = vi.fn()
  const client = createQueryClient(onSignedOut)
  const mutate = (meta: { proves?: boolean }, status: number) =>
    new MutationObserver(client, { mutationFn: refused(status), meta }).mutate(undefined).catch(() => undefined)

  await mutate({ proves: true }, 401)
  await mutate({}, 403)
  expect(onSignedOut).not.toHaveBeenCalled()
  await mutate({}, 401)
  expect(onSignedOut).toHaveBeenCalledTimes(1)
  // What asks for nothing of the kind has no other reason.
  await client.fetchQuery({ queryKey: ['x'], queryFn: refused(401) }).catch(() => undefined)
  expect(onSignedOut).toHaveBeenCalledTimes(2)
})
