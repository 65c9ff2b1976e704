import { queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'
import { projectKeys } from '~/shared/project-keys'

export type Compared = { base: string; branch: string; db: string }

/** Two runs of pg_dump: asked for once, and again when somebody asks. */
export const schemaDiffQuery = (projectId: string, { base, branch, db }: Compared) =>
  queryOptions({
    queryKey: [...projectKeys.one(projectId), 'branches', branch, 'schema-diff', base, db],
    queryFn: () =>
      unwrap(
        client.GET('/api/v2/projects/{project_id}/branches/{branch_id}/compare_schema', {
          params: {
            path: { project_id: projectId, branch_id: branch },
            query: { db_name: db, base_branch_id: base },
          },
        }),
      ),
    staleTime: Infinity,
    retry: false,
  })
