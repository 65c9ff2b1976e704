import { useQuery } from '@tanstack/react-query'

import { errorText } from '~/api/errors'
import type { Branch } from '~/api/types'
import { ago, seconds } from '~/lib/format'
import { useNow } from '~/shared/use-now'
import { Card } from '~/ui/Card'
import { Loading, Notice } from '~/ui/Notice'
import { Table } from '~/ui/Table'

import { operationText } from './operation-text'
import { OperationStatus } from './OperationStatus'
import { operationsQuery } from './queries'

type Props = {
  projectId: string
  /** To call them by their names. */
  branches: Branch[]
  branchId?: string
}

/** What was done to a project, or of that to one branch. */
export function Operations({ projectId, branches, branchId }: Props) {
  const { data, error } = useQuery(operationsQuery(projectId))
  const now = useNow()
  const names = new Map(branches.map((branch) => [branch.id, branch.name]))
  const rows = data?.operations.filter((row) => branchId === undefined || row.branch_id === branchId)
  return (
    <Card title="Operations" note={branchId === undefined ? 'The last 20, newest first.' : 'Of the project’s last 20 those on this branch, newest first.'}>
      {error && <Notice tone="bad">{errorText(error)}</Notice>}
      {!rows ? (
        !error && <Loading what="operations" />
      ) : (
        <Table
          caption="Last operations"
          cards
          rows={rows}
          rowKey={(row) => row.id}
          empty={branchId === undefined ? 'Nothing has been done here yet.' : 'None of the last operations was on this branch.'}
          columns={[
            { key: 'action', header: 'Operation', cell: (row) => <div>{operationText(row)}{(row.error ?? row.warning) && <p className="line-clamp-3 text-xs text-muted" title={row.error ?? row.warning ?? undefined}>{row.error ?? row.warning}</p>}</div> },
            { key: 'status', header: 'Status', cell: (row) => <OperationStatus operation={row} /> },
            { key: 'what', header: 'On', cell: (row) => (!row.endpoint_id && names.get(row.branch_id ?? '')) || <code className="text-xs whitespace-nowrap">{row.endpoint_id ?? row.branch_id ?? row.project_id}</code> },
            { key: 'when', header: 'Asked for', cell: (row) => ago(row.created_at, now) },
            { key: 'took', header: 'Took', numeric: true, cell: (row) => seconds(row.total_duration_ms / 1000) },
          ]}
        />
      )}
    </Card>
  )
}
