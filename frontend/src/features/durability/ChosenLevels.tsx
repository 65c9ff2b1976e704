import { useQuery } from '@tanstack/react-query'

import { errorText } from '~/api/errors'
import type { ChosenLevel } from '~/api/types'
import { Badge } from '~/ui/Badge'
import { Loading, Notice } from '~/ui/Notice'
import { Table } from '~/ui/Table'

import { FACTS } from './levels'
import { computeDurabilityQuery } from './queries'

function Standing({ chosen }: { chosen: ChosenLevel }) {
  if (chosen.forbidden)
    return (
      <Badge tone="bad" title="A policy forbids this level to branches; Postgres lets roles and sessions choose it.">
        below the policy
      </Badge>
    )
  if (chosen.weaker) return <Badge tone="warn">weaker than the branch</Badge>
  return <Badge>as strong or stronger</Badge>
}

/** What roles and databases of a running compute have chosen for their sessions. */
export function ChosenLevels({ computeId }: { computeId: string }) {
  const { data, error } = useQuery(computeDurabilityQuery(computeId))
  if (error) return <Notice tone="bad">{errorText(error)}</Notice>
  if (!data) return <Loading what="what roles have chosen" />
  if (data.chosen.length === 0) {
    return (
      <p className="text-sm text-muted">
        No role and no database has chosen a level of its own. What a session has chosen for itself only that session
        knows.
      </p>
    )
  }
  return (
    <>
      <Table
        caption="Levels that roles and databases have chosen"
        cards
        rows={data.chosen}
        rowKey={(row) => `${row.role ?? ''}/${row.database ?? ''}`}
        empty=""
        columns={[
          { key: 'role', header: 'Sessions of', cell: (row) => row.role ?? 'all roles' },
          { key: 'database', header: 'In database', cell: (row) => row.database ?? 'all' },
          {
            key: 'level',
            header: 'Level',
            cell: (row) => (
              <span>
                {row.level ? FACTS[row.level].name : 'unknown'}{' '}
                <code className="text-xs text-muted">synchronous_commit = {row.synchronous_commit}</code>
              </span>
            ),
          },
          { key: 'standing', header: 'Against the branch', cell: (row) => <Standing chosen={row} /> },
        ]}
      />
      <p className="mt-2 text-xs text-muted">
        {data.more && 'There are more. '}What a session has chosen for itself only that session knows.
      </p>
    </>
  )
}
