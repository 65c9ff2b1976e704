import { keepPreviousData, queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'
import type { ProjectConsumption } from '~/api/types'

import { framesOf, RANGES, type RangeName } from './range'

/** Usage is measured about each minute. */
const REFRESH_MS = 30_000
const PAGE = 100
/** Of an organisation's projects, the newest are shown. */
const MOST_PAGES = 10

function wanted(range: RangeName) {
  const { starts, end } = framesOf(range, new Date())
  const from = starts[0] ?? end
  const query = { from: from.toISOString(), to: end.toISOString(), granularity: RANGES[range].granularity }
  return { starts, query }
}

/** Of all projects of the organisation together. `starts`: begins of all timeframes. */
export const accountUsageQuery = (range: RangeName) =>
  queryOptions({
    queryKey: ['usage', 'account', range],
    queryFn: async () => {
      const { starts, query } = wanted(range)
      const { periods } = await unwrap(client.GET('/api/v2/consumption_history/account', { params: { query } }))
      return { starts, periods }
    },
    placeholderData: keepPreviousData,
    refetchInterval: REFRESH_MS,
  })

export const projectUsageQuery = (id: string, range: RangeName) =>
  queryOptions({
    queryKey: ['usage', 'project', id, range],
    queryFn: async () => {
      const { starts, query } = wanted(range)
      const { projects } = await unwrap(
        client.GET('/api/v2/consumption_history/projects', { params: { query: { ...query, project_ids: [id] } } }),
      )
      return { starts, periods: projects[0]?.periods ?? [] }
    },
    placeholderData: keepPreviousData,
    refetchInterval: REFRESH_MS,
  })

/** What each project of the organisation used; `more`: there are others, older than these. */
export const projectsUsageQuery = (range: RangeName) =>
  queryOptions({
    queryKey: ['usage', 'projects', range],
    queryFn: async () => {
      const { query } = wanted(range)
      const found: ProjectConsumption[] = []
      let cursor: string | null = null
      for (let page = 0; page < MOST_PAGES; page += 1) {
        const answer: { projects: ProjectConsumption[]; pagination: { cursor?: string | null } } = await unwrap(
          client.GET('/api/v2/consumption_history/projects', {
            params: { query: { ...query, limit: PAGE, ...(cursor ? { cursor } : {}) } },
          }),
        )
        found.push(...answer.projects)
        cursor = answer.pagination.cursor ?? null
        if (cursor === null) break
      }
      return { projects: found, more: cursor !== null }
    },
    placeholderData: keepPreviousData,
    refetchInterval: REFRESH_MS * 2,
  })
