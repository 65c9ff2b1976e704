import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'

import { errorText } from '~/api/errors'
import type { Branch, BranchSafekeeper, BranchSafekeepers as Held } from '~/api/types'
import { OperationStatus } from '~/features/operations/OperationStatus'
import { operationQuery } from '~/features/operations/queries'
import { ago, bytes, seconds } from '~/lib/format'
import { useNow } from '~/shared/use-now'
import { Badge } from '~/ui/Badge'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { Loading, Notice } from '~/ui/Notice'
import { Stat, Stats } from '~/ui/Stat'
import { Table } from '~/ui/Table'

import { BranchSafekeepersForm } from './BranchSafekeepersForm'
import { branchSafekeepersQuery } from './queries'
import { ACKNOWLEDGING, diskText, numbered, ROLES, spare, STATES, votersOf } from './voters'

type Props = { projectId: string; branch: Branch }

/** Who holds a branch's log, how each of them is, and what is being changed. */
export function BranchSafekeepers({ projectId, branch }: Props) {
  const { data, error } = useQuery(branchSafekeepersQuery(projectId, branch.id))
  const [asked, setAsked] = useState(false)
  const refused = !data
    ? 'The safekeepers are being asked.'
    : data.operation_id
      ? 'They are being changed.'
      : branch.current_state === 'ready'
        ? null
        : 'The branch is not ready yet.'
  return (
    <Card
      title="Safekeepers"
      note="Who holds its log, as they say themselves. A commit waits for a majority of the voters."
      actions={
        <Button
          needs="decides"
          disabledReason={refused}
          onClick={() => {
            setAsked(true)
          }}
        >
          Change safekeepers
        </Button>
      }
    >
      {error && (
        <div className="mb-3">
          <Notice tone="bad">{errorText(error)}</Notice>
        </div>
      )}
      {data ? <Members projectId={projectId} held={data} /> : !error && <Loading what="safekeepers" />}
      {asked && data && (
        <BranchSafekeepersForm
          projectId={projectId}
          branch={branch}
          held={data}
          onClose={() => {
            setAsked(false)
          }}
        />
      )}
    </Card>
  )
}

function Members({ projectId, held }: { projectId: string; held: Held }) {
  const now = useNow()
  const voters = votersOf(held)
  const away = held.members.filter((each) => each.role === 'voter' && !ACKNOWLEDGING.includes(each.state)).length
  return (
    <>
      <div className="mb-3 grid gap-2 empty:hidden">
        {held.operation_id && (
          <Progress projectId={projectId} operationId={held.operation_id} wanted={held.wanted ?? []} />
        )}
        {!held.operation_id && held.wanted && (
          <Notice tone="warn">
            The last change did not get to {numbered(held.wanted)}. It goes on when the same ones are chosen again.
          </Notice>
        )}
        {held.reason && <Notice tone="warn">This may not be the newest: {held.reason}.</Notice>}
      </div>
      <div className="mb-4 empty:hidden">
        {voters.length > 0 && (
          <Stats>
            <Stat
              label="Voters"
              value={voters.length}
              note={`commits go on while at most ${String(spare(voters.length))} of them ${spare(voters.length) === 1 ? 'is' : 'are'} away`}
            />
            <Stat
              label="Away"
              value={away === 0 ? '0' : <span className="text-bad">{away}</span>}
              note={away > spare(voters.length) ? 'no majority: commits wait' : 'voters that do not acknowledge'}
            />
            <Stat
              label="Generation"
              value={held.generation ?? '—'}
              note={
                held.generation === 0
                  ? 'the log does not name its members yet'
                  : `of the members, confirmed in term ${String(held.generation_term ?? '—')}`
              }
            />
          </Stats>
        )}
      </div>
      <Table
        caption="Safekeepers of the branch"
        cards
        rows={held.members}
        rowKey={(row) => String(row.safekeeper_id)}
        empty="No safekeeper shows the log of this branch."
        columns={[
          { key: 'id', header: 'Safekeeper', cell: (row) => row.safekeeper_id },
          {
            key: 'role',
            header: 'Role',
            cell: (row) => <span title={ROLES[row.role].means}>{ROLES[row.role].text}</span>,
          },
          { key: 'state', header: 'State', cell: (row) => <MemberState member={row} now={now} /> },
          {
            key: 'lag',
            header: 'Behind',
            numeric: true,
            cell: (row) => (row.lag_bytes === 0 ? 'nothing' : bytes(row.lag_bytes)),
          },
          {
            key: 'flush',
            header: 'On disk to',
            cell: (row) => <code className="text-xs">{row.flush_lsn ?? '—'}</code>,
          },
          { key: 'disk', header: 'Disk', cell: (row) => <Disk member={row} /> },
          { key: 'since', header: 'Since', cell: (row) => ago(row.since, now) },
        ]}
      />
    </>
  )
}

function MemberState({ member, now }: { member: BranchSafekeeper; now: number }) {
  const { text, tone } = STATES[member.state]
  if (member.role === 'none' && member.state === 'active') return <Badge>kept</Badge>
  return (
    <div className="grid justify-items-start gap-1">
      <Badge tone={tone}>{text}</Badge>
      {member.reason && <span className="text-xs text-muted">{member.reason}</span>}
      {member.sick_since && <span className="text-xs text-muted">Since {ago(member.sick_since, now)}.</span>}
    </div>
  )
}

function Disk({ member: { disk, incarnation } }: { member: BranchSafekeeper }) {
  return (
    <code className="text-xs" title={disk ?? undefined}>
      {diskText(disk)}
      {incarnation ? ` (given it again ${incarnation === 1 ? 'once' : `${String(incarnation)} times`})` : ''}
    </code>
  )
}

function Progress({ projectId, operationId, wanted }: { projectId: string; operationId: string; wanted: number[] }) {
  const { data } = useQuery(operationQuery(projectId, operationId))
  const operation = data?.operation
  return (
    <Notice>
      <span className="flex flex-wrap items-center justify-between gap-2">
        <span>Becoming {numbered(wanted)}. Computes run on meanwhile.</span>
        <span className="tabular flex items-center gap-2 text-xs">
          {operation && operation.status !== 'scheduling' && seconds(operation.total_duration_ms / 1000)}
          {operation && <OperationStatus operation={operation} />}
        </span>
      </span>
    </Notice>
  )
}
