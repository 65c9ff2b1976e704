import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'

import { errorText } from '~/api/errors'
import { rowsOf } from '~/features/usage/figures'
import { ProjectsUsage } from '~/features/usage/ProjectsUsage'
import { accountUsageQuery, projectsUsageQuery } from '~/features/usage/queries'
import { RANGES, USUAL_RANGE } from '~/features/usage/range'
import { RangeField, Usage } from '~/features/usage/Usage'
import { PageHeader } from '~/shared/PageHeader'
import { Loading, Notice } from '~/ui/Notice'

export function UsagePage() {
  const range = useSearch({ from: '/app/usage' }).range ?? USUAL_RANGE
  const navigate = useNavigate({ from: '/usage' })
  const account = useQuery(accountUsageQuery(range))
  const projects = useQuery(projectsUsageQuery(range))
  const error = account.error ?? projects.error
  return (
    <>
      <PageHeader
        title="Usage"
        note="Of all projects of the organization: how long computes ran, what they wrote, what storage holds."
        actions={
          <RangeField
            range={range}
            onChange={(chosen) => void navigate({ search: { range: chosen }, replace: true, resetScroll: false })}
          />
        }
      />
      {error && <Notice tone="bad">{errorText(error)}</Notice>}
      <div className="grid gap-4">
        {account.data ? (
          <Usage
            rows={rowsOf(account.data.periods, account.data.starts, RANGES[range].granularity)}
            file={`usage-${range}`}
          />
        ) : (
          !error && <Loading what="usage" />
        )}
        {projects.data && (
          <ProjectsUsage
            projects={projects.data.projects}
            more={projects.data.more}
            file={`usage-by-project-${range}`}
          />
        )}
      </div>
    </>
  )
}
