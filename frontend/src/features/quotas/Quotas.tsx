import { useQuery } from '@tanstack/react-query'

import { errorText } from '~/api/errors'
import type { Quota } from '~/api/types'
import { Card } from '~/ui/Card'
import { Meter } from '~/ui/Meter'

import { accountQuotasQuery, projectQuotasQuery } from './queries'
import { quotaUse } from './use'

const TONES = { open: 'accent', under: 'accent', near: 'warn', reached: 'bad' } as const

/** How much of each quota is used, as bars beside the limits. */
export function QuotaBars({ quotas, owner }: { quotas: Quota[]; owner: 'account' | 'project' }) {
  return (
    <ul aria-label={`Quotas of the ${owner}`} className="grid gap-3 sm:grid-cols-2 lg:grid-cols-4">
      {quotas.map((quota) => {
        const use = quotaUse(quota, owner)
        return (
          <li key={quota.name} className="min-w-0">
            <p className="text-xs text-muted">{use.label}</p>
            <p className="tabular mb-1 text-sm font-medium">
              {use.text}
              {use.state === 'reached' && <span className="text-bad"> — full</span>}
              {use.state === 'near' && <span className="text-warn"> — nearly full</span>}
            </p>
            {use.share != null && (
              <Meter label={use.label} text={use.text} share={use.share} tone={TONES[use.state]} />
            )}
            {quota.fullest != null && quota.limit != null && (
              <p className="mt-0.5 truncate text-xs text-muted">
                the most: <code>{quota.fullest}</code>
              </p>
            )}
          </li>
        )
      })}
    </ul>
  )
}

/** The quotas of the organisation that the console acts in. */
export function OrganizationQuotas() {
  const { data, error } = useQuery(accountQuotasQuery)
  return (
    <Card
      title="Quotas"
      note="What may be made, and what is there, over all projects. The installation’s operator sets the limits."
    >
      {error && <p className="text-sm text-bad">{errorText(error)}</p>}
      {data && <QuotaBars quotas={data.quotas} owner="account" />}
    </Card>
  )
}

/** A project's quotas, and those of the account that it is one project of. */
export function Quotas({ projectId }: { projectId: string }) {
  const project = useQuery(projectQuotasQuery(projectId))
  const account = useQuery(accountQuotasQuery)
  const error = project.error ?? account.error
  return (
    <Card title="Quotas" note="What may be made, and what is there. The installation’s operator sets the limits.">
      {error && <p className="text-sm text-bad">{errorText(error)}</p>}
      <div className="grid gap-4">
        {project.data && <QuotaBars quotas={project.data.quotas} owner="project" />}
        {account.data && (
          <div>
            <h3 className="mb-2 text-sm font-semibold">Of the account, over all its projects</h3>
            <QuotaBars quotas={account.data.quotas} owner="account" />
          </div>
        )}
      </div>
    </Card>
  )
}
