import { infiniteQueryOptions, keepPreviousData, queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'
import type { RolloutBody } from '~/api/types'

import { type GridData, mergeGrid } from './grid-data'

export const rolloutKeys = { all: ['rollouts'] as const, one: (id: string) => ['rollouts', id] as const }

/** Shared by every question about one rollout. */
const path = (id: string) => ({ params: { path: { rollout_id: id } } })

/** Newest first, a page at a time. */
export const rolloutsQuery = infiniteQueryOptions({
  queryKey: [...rolloutKeys.all, 'list'],
  queryFn: ({ pageParam }) =>
    unwrap(
      client.GET('/api/v2/rollouts', {
        params: { query: { limit: 50, ...(pageParam ? { cursor: pageParam } : {}) } },
      }),
    ),
  initialPageParam: null as string | null,
  getNextPageParam: (page) => page.pagination.cursor ?? null,
  refetchInterval: 5_000,
})

export const rolloutQuery = (id: string) =>
  queryOptions({
    queryKey: rolloutKeys.one(id),
    queryFn: () => unwrap(client.GET('/api/v2/rollouts/{rollout_id}', path(id))),
    refetchInterval: 2_000,
  })

/** Every compute of a rollout: all of them once, then only what has changed. */
export const rolloutGridQuery = (id: string) => {
  const queryKey = [...rolloutKeys.one(id), 'grid'] as const
  return queryOptions({
    queryKey,
    queryFn: async (context): Promise<GridData> => {
      const known = context.client.getQueryData<GridData>(queryKey)
      const grid = await unwrap(
        client.GET('/api/v2/rollouts/{rollout_id}/grid', {
          params: { path: { rollout_id: id }, query: known ? { since: known.at } : {} },
        }),
      )
      return mergeGrid(known, grid)
    },
    refetchInterval: 2_000,
    // Rows that did not change keep their identity already.
    structuralSharing: false,
  })
}

export const rolloutComputeQuery = (id: string, computeId: string) =>
  queryOptions({
    queryKey: [...rolloutKeys.one(id), 'compute', computeId],
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/rollouts/{rollout_id}/computes/{compute_id}', {
          params: { path: { rollout_id: id, compute_id: computeId } },
        }),
      ),
    refetchInterval: 2_000,
  })

/** A compute's figures across its switch; `live` while something of it is still measured. */
export const rolloutCourseQuery = (id: string, computeId: string, live: boolean) =>
  queryOptions({
    queryKey: [...rolloutKeys.one(id), 'course', computeId],
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/rollouts/{rollout_id}/computes/{compute_id}/course', {
          params: { path: { rollout_id: id, compute_id: computeId } },
        }),
      ),
    refetchInterval: live ? 5_000 : 60_000,
  })

/** What the rollout did, by fleet, wave and cell, from the database; computes one by one are asked for elsewhere. Asked
 * once more when it is over: the answer before may lack what was measured last. */
export const rolloutEvidenceQuery = (id: string, live: boolean) =>
  queryOptions({
    queryKey: [...rolloutKeys.one(id), 'evidence', live ? 'so far' : 'at the end'],
    placeholderData: keepPreviousData,
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/rollouts/{rollout_id}/evidence', {
          params: { path: { rollout_id: id }, query: { limit: 1 } },
        }),
      ),
    refetchInterval: live ? 10_000 : false,
  })

export const rolloutExclusionsQuery = (id: string) =>
  queryOptions({
    queryKey: [...rolloutKeys.one(id), 'exclusions'],
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/rollouts/{rollout_id}/exclusions', {
          params: { path: { rollout_id: id }, query: { limit: 400 } },
        }),
      ),
    staleTime: 60_000,
  })

/** Asked for, not polled: it computes a whole plan. */
export const rolloutDiffQuery = (id: string) =>
  queryOptions({
    queryKey: [...rolloutKeys.one(id), 'diff'],
    queryFn: () => unwrap(client.GET('/api/v2/rollouts/{rollout_id}/plan/diff', path(id))),
    enabled: false,
    retry: false,
  })

export const rolloutAuditQuery = (id: string) =>
  queryOptions({
    queryKey: [...rolloutKeys.one(id), 'audit'],
    queryFn: () => unwrap(client.GET('/api/v2/rollouts/{rollout_id}/audit', path(id))),
    refetchInterval: 5_000,
  })

/** Entries of each kind that the preview lists; its totals count all. */
export const PREVIEW_ENTRIES = 400

/** The plan that a rollout would have now; changes nothing. */
export const planQuery = (body: RolloutBody, enabled: boolean) =>
  queryOptions({
    queryKey: ['rollout-plan', body],
    queryFn: () =>
      unwrap(client.POST('/api/v2/rollouts/plan', { params: { query: { limit: PREVIEW_ENTRIES } }, body })),
    placeholderData: keepPreviousData,
    enabled,
    retry: false,
    staleTime: 10_000,
  })

export function createRollout(body: RolloutBody) {
  return unwrap(client.POST('/api/v2/rollouts', { body }))
}

/** Whom a control concerns: the whole rollout, one wave of it, or one compute. */
export type Target = { wave: number } | { compute_id: string } | null
export type RolloutControl = 'pause' | 'resume' | 'approve' | 'skip' | 'abort' | 'rollback'

function rollbackBody(target: Target) {
  if (target === null) return { scope: 'all' as const }
  return 'wave' in target ? { scope: 'wave' as const, ...target } : { scope: 'compute' as const, ...target }
}

/** `gate`: the one that an approval was decided on; another stays closed. */
export function controlRollout(
  id: string,
  control: RolloutControl,
  target: Target = null,
  gate: string | null = null,
) {
  const params = path(id)
  switch (control) {
    case 'pause':
      return unwrap(client.POST('/api/v2/rollouts/{rollout_id}/pause', params))
    case 'resume':
      return unwrap(client.POST('/api/v2/rollouts/{rollout_id}/resume', params))
    case 'approve':
      return unwrap(client.POST('/api/v2/rollouts/{rollout_id}/approve', { ...params, body: { gate } }))
    case 'skip':
      if (target === null) throw new Error('skip needs a wave or a compute')
      return unwrap(client.POST('/api/v2/rollouts/{rollout_id}/skip', { ...params, body: target }))
    case 'abort':
      return unwrap(client.POST('/api/v2/rollouts/{rollout_id}/abort', params))
    case 'rollback':
      return unwrap(client.POST('/api/v2/rollouts/{rollout_id}/rollback', { ...params, body: rollbackBody(target) }))
  }
}
