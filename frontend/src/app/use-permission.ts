import { useQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { useCallback } from 'react'

import { projectQuery } from '~/features/projects/queries'
import { NEEDS, refusal } from '~/features/session/access'
import { useSessionUser } from '~/features/session/use-session'
import type { Needs } from '~/ui/permission'

/**
 * What who is signed in may not do, for the controls of the page that is shown. On the page of a project of another
 * organisation of theirs a person acts in that one, with a role that only the API knows: it has the only word there.
 */
export function usePermission(): (needs: Needs) => string | null {
  const user = useSessionUser()
  const { projectId } = useParams({ strict: false })
  const { data } = useQuery({ ...projectQuery(projectId ?? ''), enabled: projectId !== undefined })
  const elsewhere =
    user.person !== null &&
    projectId !== undefined &&
    data !== undefined &&
    data.project.org_id !== user.organization_id
  return useCallback(
    (needs: Needs) => (elsewhere && !NEEDS[needs].whole ? null : refusal(user, NEEDS[needs])),
    [user, elsewhere],
  )
}
