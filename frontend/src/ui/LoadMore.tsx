import { count } from '~/lib/format'

import { Button } from './Button'

export type More = { hasNextPage: boolean; isFetchingNextPage: boolean; fetchNextPage: () => unknown }

/** Below a list that comes by pages: how much of it is shown, and a way to the rest. Takes what an infinite query says. */
export function LoadMore({ shown, hasNextPage, isFetchingNextPage, fetchNextPage }: More & { shown: number }) {
  if (!hasNextPage) return null
  return (
    <div className="mt-3 text-center">
      <Button busy={isFetchingNextPage} onClick={() => void fetchNextPage()}>
        Load more ({count(shown)} shown)
      </Button>
    </div>
  )
}
