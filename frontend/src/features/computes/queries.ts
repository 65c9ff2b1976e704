import { infiniteQueryOptions, keepPreviousData, queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'

export type ComputesFilter = { q?: string; wanted?: 'active' | 'idle'; pushdown?: boolean }

/** Computes that a page holds: each costs a question to its agent. */
const PAGE = 100
/** All that is shown is asked for again at this pace, as long as it is few pages. */
const REFRESH_MS = 5_000

/** Newest first, a page at a time, filtered by the API. */
export const computesQuery = ({ q, wanted, pushdown }: ComputesFilter) =>
  infiniteQueryOptions({
    queryKey: ['computes', 'list', { q, wanted, pushdown }],
    queryFn: ({ pageParam }) =>
      unwrap(
        client.GET('/api/v2/computes', {
          params: {
            query: {
              limit: PAGE,
              ...(q ? { q } : {}),
              ...(wanted ? { wanted } : {}),
              ...(pushdown === undefined ? {} : { pushdown }),
              ...(pageParam ? { cursor: pageParam } : {}),
            },
          },
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.pagination.cursor ?? null,
    refetchInterval: (query) => REFRESH_MS * (query.state.data?.pages.length ?? 1),
    placeholderData: keepPreviousData,
  })

export const computeQuery = (id: string) =>
  queryOptions({
    queryKey: ['computes', id],
    queryFn: () => unwrap(client.GET('/api/v2/computes/{endpoint_id}', { params: { path: { endpoint_id: id } } })),
    refetchInterval: 2_000,
  })

/** The settings that were chosen for a compute, and what is in force of them. */
export const computeSettingsQuery = (id: string) =>
  queryOptions({
    queryKey: ['computes', id, 'settings'],
    queryFn: () =>
      unwrap(client.GET('/api/v2/computes/{endpoint_id}/settings', { params: { path: { endpoint_id: id } } })),
    refetchInterval: 5_000,
  })

/** The last `minutes` at 5 s steps, refreshed as samples arrive. */
export const computeMetricsQuery = (id: string, minutes: number) =>
  queryOptions({
    queryKey: ['computes', id, 'metrics', minutes],
    queryFn: () => {
      const to = new Date()
      const from = new Date(to.getTime() - minutes * 60_000)
      return unwrap(
        client.GET('/api/v2/computes/{endpoint_id}/metrics', {
          params: {
            path: { endpoint_id: id },
            query: { from: from.toISOString(), to: to.toISOString(), step_seconds: Math.max(5, minutes / 3) },
          },
        }),
      )
    },
    refetchInterval: 5_000,
    placeholderData: (previous) => previous,
  })

/** Where the compute's WAL came from in the last `seconds`, and what other settings would make of it. */
export const walCostQuery = (id: string, seconds: number) =>
  queryOptions({
    queryKey: ['computes', id, 'wal-cost', seconds],
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/computes/{endpoint_id}/wal_cost', {
          params: { path: { endpoint_id: id }, query: { window_seconds: seconds } },
        }),
      ),
    refetchInterval: 15_000,
    placeholderData: (previous) => previous,
  })
