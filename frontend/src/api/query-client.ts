import { MutationCache, QueryCache, QueryClient } from '@tanstack/react-query'

import { ApiError } from './errors'

declare module '@tanstack/react-query' {
  interface Register {
    /** `proves`: the request carries a password or a code, so that 401 may mean that one of them is wrong. */
    mutationMeta: { proves?: boolean }
  }
}

/** `onSignedOut` runs when any answer says that there is no session. */
export function createQueryClient(onSignedOut: () => void): QueryClient {
  const onError = (error: unknown) => {
    if (error instanceof ApiError && error.status === 401) onSignedOut()
  }
  return new QueryClient({
    queryCache: new QueryCache({ onError }),
    mutationCache: new MutationCache({
      onError: (error, _variables, _result, mutation) => {
        if (!mutation.meta?.proves) onError(error)
      },
    }),
    defaultOptions: {
      queries: {
        staleTime: 2_000,
        // 429: too many requests for now, and the next attempt comes a second or more later.
        retry: (failures, error) =>
          !(error instanceof ApiError && error.status < 500 && error.status !== 429) && failures < 3,
      },
    },
  })
}
