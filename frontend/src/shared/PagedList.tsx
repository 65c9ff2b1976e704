import type { ReactNode } from 'react'

import { errorText } from '~/api/errors'
import { LoadMore, type More } from '~/ui/LoadMore'
import { Loading, Notice } from '~/ui/Notice'

/** What an infinite query says of itself. */
type Query = More & { data: unknown; error: Error | null }

/** A list that comes by pages: what went wrong, the list once it is there, and a way to the rest. */
export function PagedList({
  query,
  what,
  shown,
  children,
}: {
  query: Query
  what: string
  shown: number
  children: ReactNode
}) {
  return (
    <>
      {query.error && <Notice tone="bad">{errorText(query.error)}</Notice>}
      {query.data === undefined ? !query.error && <Loading what={what} /> : children}
      <LoadMore
        shown={shown}
        hasNextPage={query.hasNextPage}
        isFetchingNextPage={query.isFetchingNextPage}
        fetchNextPage={query.fetchNextPage}
      />
    </>
  )
}
