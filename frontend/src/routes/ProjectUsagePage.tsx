import { useQuery, useSuspenseQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'

import { errorText } from '~/api/errors'
import { projectQuery } from '~/features/projects/queries'
import { rowsOf } from '~/features/usage/figures'
import { projectUsageQuery } from '~/features/usage/queries'
import { RANGES, USUAL_RANGE } from '~/features/usage/range'
import { RangeField, Usage } from '~/features/usage/Usage'
import { PageHeader } from '~/shared/PageHeader'
import { Loading, Notice } from '~/ui/Notice'

export function ProjectUsagePage() {
  const { projectId } = useParams({ from: '/app/projects/$projectId/usage' })
  const range = useSearch({ from: '/app/projects/$projectId/usage' }).range ?? USUAL_RANGE
  const navigate = useNavigate({ from: '/projects/$projectId/usage' })
  const { project } = useSuspenseQuery(projectQuery(projectId)).data
  const usage = useQuery(projectUsageQuery(projectId, range))
  return (
    <>
      <PageHeader
        above={
          <Link to="/projects/$projectId" params={{ projectId }} className="underline">
            {project.name}
          </Link>
        }
        title="Usage"
        note="How long the project’s computes ran, what they wrote, and what storage holds of it."
        actions={
          <RangeField
            range={range}
            onChange={(chosen) => void navigate({ search: { range: chosen }, replace: true, resetScroll: false })}
          />
        }
      />
      {usage.error && <Notice tone="bad">{errorText(usage.error)}</Notice>}
      {usage.data ? (
        <Usage
          rows={rowsOf(usage.data.periods, usage.data.starts, RANGES[range].granularity)}
          file={`usage-${project.id}-${range}`}
        />
      ) : (
        !usage.error && <Loading what="usage" />
      )}
    </>
  )
}
