import { infiniteQueryOptions, keepPreviousData, queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'

import type { Feature } from './compute-features'

export const fleetQuery = queryOptions({
  queryKey: ['fleet'],
  queryFn: () => unwrap(client.GET('/api/v2/fleet')),
  refetchInterval: 5_000,
})

export const fleetMetricsQuery = (minutes: number) =>
  queryOptions({
    queryKey: ['fleet', 'metrics', minutes],
    queryFn: () => {
      const to = new Date()
      const from = new Date(to.getTime() - minutes * 60_000)
      return unwrap(
        client.GET('/api/v2/fleet/metrics', {
          params: {
            query: { from: from.toISOString(), to: to.toISOString(), step_seconds: Math.max(5, minutes / 3) },
          },
        }),
      )
    },
    refetchInterval: 5_000,
    placeholderData: keepPreviousData,
  })

/** WAL by region over the last `minutes`, and what image pushdown saves. */
export const fleetWalQuery = (minutes: number) =>
  queryOptions({
    queryKey: ['fleet', 'wal', minutes],
    queryFn: () => {
      const to = new Date()
      const from = new Date(to.getTime() - minutes * 60_000)
      return unwrap(
        client.GET('/api/v2/fleet/wal', {
          params: {
            query: { from: from.toISOString(), to: to.toISOString(), step_seconds: Math.max(5, minutes / 3) },
          },
        }),
      )
    },
    refetchInterval: 10_000,
    placeholderData: keepPreviousData,
  })

export const storageQuery = queryOptions({
  queryKey: ['fleet', 'storage'],
  queryFn: () => unwrap(client.GET('/api/v2/fleet/storage')),
  refetchInterval: 5_000,
})

/** Regions, cells and tags that there are, each with how many computes have image pushdown. */
export const cellsQuery = queryOptions({
  queryKey: ['fleet', 'cells'],
  queryFn: () => unwrap(client.GET('/api/v2/fleet/cells')),
  refetchInterval: 10_000,
})

/** Owners of computes whose name holds `search`, by name. */
export const organizationsQuery = (search: string) =>
  queryOptions({
    queryKey: ['fleet', 'organizations', search],
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/fleet/organizations', {
          params: { query: { limit: 100, ...(search ? { search } : {}) } },
        }),
      ),
    placeholderData: keepPreviousData,
  })

export type CoverageFilter = { feature?: Feature; has?: boolean; region?: string; cell?: string; q?: string }

/** Which computes have a feature, image pushdown unless another is named, since when, and why the rest has not; a page at a time. */
export const coverageQuery = ({ feature = 'image_pushdown', has, region, cell, q }: CoverageFilter) =>
  infiniteQueryOptions({
    queryKey: ['fleet', 'features', feature, { has, region, cell, q }],
    queryFn: ({ pageParam }) =>
      unwrap(
        client.GET('/api/v2/fleet/features/{feature}', {
          params: {
            path: { feature },
            query: {
              limit: 400,
              ...(has === undefined ? {} : { has }),
              ...(region ? { region_id: region } : {}),
              ...(cell ? { cell } : {}),
              ...(q ? { q } : {}),
              ...(pageParam ? { cursor: pageParam } : {}),
            },
          },
        }),
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.pagination.cursor ?? null,
    placeholderData: keepPreviousData,
  })
