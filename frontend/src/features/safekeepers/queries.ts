import { queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'
import type { SafekeeperReplacement } from '~/api/types'
import { projectKeys } from '~/shared/project-keys'

/** Who holds a branch's log; asked more often while that is being changed. */
export const branchSafekeepersQuery = (projectId: string, branchId: string) =>
  queryOptions({
    queryKey: [...projectKeys.one(projectId), 'branches', branchId, 'safekeepers'],
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/projects/{project_id}/branches/{branch_id}/safekeepers', {
          params: { path: { project_id: projectId, branch_id: branchId } },
        }),
      ),
    refetchInterval: (query) => (query.state.data?.operation_id ? 1_500 : 5_000),
  })

/** Makes these the voters of the branch's log. */
export function setSafekeepers(projectId: string, branchId: string, safekeepers: number[]) {
  return unwrap(
    client.POST('/api/v2/projects/{project_id}/branches/{branch_id}/safekeepers', {
      params: { path: { project_id: projectId, branch_id: branchId } },
      body: { safekeepers },
    }),
  )
}

/** Gives a safekeeper's place to another one in the logs of all branches, some hundred a request. */
export async function replaceSafekeeper(
  safekeeperId: number,
  by: number,
): Promise<Pick<SafekeeperReplacement, 'queued' | 'not_queued'>> {
  const sum = { queued: 0, not_queued: [] as SafekeeperReplacement['not_queued'] }
  let after: string | null = null
  do {
    const answer: SafekeeperReplacement = await unwrap(
      client.POST('/api/v2/fleet/storage/safekeepers/{safekeeper_id}/replace', {
        params: { path: { safekeeper_id: safekeeperId } },
        body: { with: by, ...(after === null ? {} : { after }) },
      }),
    )
    sum.queued += answer.queued
    sum.not_queued.push(...answer.not_queued)
    after = answer.remaining > 0 ? answer.next : null
  } while (after !== null)
  return sum
}
