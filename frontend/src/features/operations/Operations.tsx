import { useInfiniteQuery } from '@tanstack/react-query'

import type { Branch, Operation } from '~/api/types'
import { ago, seconds } from '~/lib/format'
import { PagedList } from '~/shared/PagedList'
import { useNow } from '~/shared/use-now'
import { Card } from '~/ui/Card'
import { Table } from '~/ui/Table'

import { CancelButton } from './CancelButton'
import { operationText } from './operation-text'
import { OperationStatus } from './OperationStatus'
import { operationsQuery } from './queries'

type Props = {
  projectId: string
  /** To call them by their names. */
  branches: Branch[]
  branchId?: string
}

/** What an operation is on: its compute, branch or project. */
const idOf = (row: Operation) => row.endpoint_id ?? row.branch_id ?? row.project_id

/** What was done to a project, or of that to one branch. */
export function Operations({ projectId, branches, branchId }: Props) {
  const query = useInfiniteQuery(operationsQuery(projectId))
  const now = useNow()
  const names = new Map(branches.map((branch) => [branch.id, branch.name]))
  const nameOf = (row: Operation) => (row.endpoint_id ? undefined : names.get(row.branch_id ?? ''))
  const rows = (query.data?.pages ?? [])
    .flatMap((page) => page.operations)
    .filter((row) => branchId === undefined || row.branch_id === branchId)
  return (
    <Card
      title="Operations"
      note={
        branchId === undefined
          ? 'Newest first. Operations on different branches and computes go on at the same time.'
          : 'Of the project’s operations those on this branch, newest first.'
      }
    >
      <PagedList query={query} what="operations" shown={rows.length}>
        <Table
          caption="Last operations"
          cards
          partial={query.hasNextPage}
          rows={rows}
          rowKey={(row) => row.id}
          empty={
            branchId === undefined
              ? 'Nothing has been done here yet.'
              : 'None of the last operations was on this branch.'
          }
          columns={[
            {
              key: 'action',
              header: 'Operation',
              sort: operationText,
              cell: (row) => (
                <div>
                  {operationText(row)}
                  {(row.error ?? row.warning) && (
                    <p className="line-clamp-3 text-xs text-muted" title={row.error ?? row.warning ?? undefined}>
                      {row.error ?? row.warning}
                    </p>
                  )}
                </div>
              ),
            },
            {
              key: 'status',
              header: 'Status',
              sort: (row) => row.status,
              cell: (row) => <OperationStatus operation={row} />,
            },
            {
              key: 'what',
              header: 'On',
              sort: (row) => nameOf(row) ?? idOf(row),
              cell: (row) => nameOf(row) ?? <code className="text-xs whitespace-nowrap">{idOf(row)}</code>,
            },
            {
              key: 'when',
              header: 'Asked for',
              sort: (row) => Date.parse(row.created_at),
              cell: (row) => ago(row.created_at, now),
            },
            {
              key: 'took',
              header: 'Took',
              numeric: true,
              sort: (row) => row.total_duration_ms,
              cell: (row) => seconds(row.total_duration_ms / 1000),
            },
            {
              key: 'cancel',
              header: <span className="sr-only">Cancel</span>,
              cell: (row) => row.cancellable && <CancelButton operation={row} />,
            },
          ]}
        />
      </PagedList>
    </Card>
  )
}
