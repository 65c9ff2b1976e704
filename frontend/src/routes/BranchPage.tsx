import { useQuery, useSuspenseQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams } from '@tanstack/react-router'
import { useState } from 'react'

import { errorText } from '~/api/errors'
import type { Branch, Endpoint } from '~/api/types'
import { branchesBelow } from '~/features/branches/branch-tree'
import type { BranchAsk } from '~/features/branches/BranchTree'
import { deleteRefusal, detachRefusal, quotaOf, restoreRefusal } from '~/features/branches/can'
import { ConnectionString } from '~/features/branches/ConnectionString'
import { BranchMark, HistoryStrip } from '~/features/branches/HistoryStrip'
import { branchesQuery, branchHistoryQuery, branchQuery, protectBranch } from '~/features/branches/queries'
import { QuotaMeter } from '~/features/branches/QuotaMeter'
import { ComputeRow } from '~/features/computes/ComputeRow'
import { createEndpoint, endpointsQuery } from '~/features/computes/endpoint-queries'
import { RolesAndDatabases } from '~/features/databases/RolesAndDatabases'
import { BranchCommits } from '~/features/durability/BranchCommits'
import { Operations } from '~/features/operations/Operations'
import { projectQuery } from '~/features/projects/queries'
import { BranchSafekeepers } from '~/features/safekeepers/BranchSafekeepers'
import { bytes, span, time } from '~/lib/format'
import { lazyDialog } from '~/shared/lazy-dialog'
import { PageHeader } from '~/shared/PageHeader'
import { projectKeys } from '~/shared/project-keys'
import { StateBadge } from '~/shared/StateBadge'
import { useAction } from '~/shared/use-action'
import { useNow } from '~/shared/use-now'
import { Badge } from '~/ui/Badge'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { Loading, Notice } from '~/ui/Notice'
import { Stat, Stats } from '~/ui/Stat'
import { Table } from '~/ui/Table'

const BranchDialogs = lazyDialog(() => import('~/features/branches/BranchDialogs'), 'BranchDialogs')

type Of = { projectId: string; branch: Branch }

function BranchLink({ projectId, id, children }: { projectId: string; id: string; children: string }) {
  return (
    <Link
      to="/projects/$projectId/branches/$branchId"
      params={{ projectId, branchId: id }}
      className="font-medium text-accent underline"
    >
      {children}
    </Link>
  )
}

function History({ projectId, branch, since }: Of & { since: string }) {
  const { data, error } = useQuery(branchHistoryQuery(projectId, branch.id))
  const now = useNow()
  if (error) return <Notice tone="bad">{errorText(error)}</Notice>
  if (!data) return <Loading what="history" />
  return (
    <>
      <HistoryStrip history={data} since={since} now={now} />
      <Stats>
        <Stat
          label="Oldest state"
          value={data.oldest_lsn}
          note={data.oldest_timestamp ? `committed ${time(data.oldest_timestamp)}` : 'before its first commit'}
        />
        <Stat
          label="Newest state"
          value={data.newest_lsn}
          note={data.newest_timestamp ? `committed ${time(data.newest_timestamp)}` : 'nothing is committed yet'}
        />
      </Stats>
      {data.branch_points.length > 0 && (
        <div className="mt-4">
          <Table
            caption="Branches made from it"
            cards
            rows={data.branch_points}
            rowKey={(row) => row.branch_id}
            empty="No branch was made from it."
            columns={[
              {
                key: 'name',
                header: 'Branch made from it',
                cell: (row) => (
                  <span className="inline-flex items-center gap-2">
                    <BranchMark />
                    <BranchLink projectId={projectId} id={row.branch_id}>
                      {row.name}
                    </BranchLink>
                  </span>
                ),
              },
              { key: 'lsn', header: 'Made at LSN', cell: (row) => <code className="text-xs">{row.lsn}</code> },
              { key: 'time', header: 'Its newest commit then', cell: (row) => time(row.timestamp) },
            ]}
          />
        </div>
      )}
    </>
  )
}

function Computes({ projectId, branch, endpoints }: Of & { endpoints: Endpoint[] }) {
  const add = useAction(() => createEndpoint(projectId, branch.id), {
    done: 'Compute is being created',
    invalidate: [projectKeys.one(projectId)],
  })
  const own = endpoints.filter((endpoint) => endpoint.branch_id === branch.id)
  if (own.length > 0)
    return (
      <>
        {own.map((endpoint) => (
          <ComputeRow key={endpoint.id} projectId={projectId} endpoint={endpoint} withLoad />
        ))}
      </>
    )
  return (
    <div className="flex flex-wrap items-center gap-3">
      <p className="text-muted">It has no compute: nobody can connect to it.</p>
      <Button
        needs="works"
        busy={add.isPending}
        onClick={() => {
          add.mutate(undefined)
        }}
      >
        Add compute
      </Button>
    </div>
  )
}

function Protect({ projectId, branch }: Of) {
  const change = useAction(() => protectBranch(projectId, branch.id, !branch.protected), {
    done: branch.protected
      ? `${branch.name} is no longer protected`
      : `${branch.name} is protected: it cannot be deleted or restored`,
    invalidate: [projectKeys.one(projectId)],
  })
  return (
    <Button
      needs="works"
      title={
        branch.protected ? 'It can be deleted and restored again.' : 'It can then be neither deleted nor restored.'
      }
      busy={change.isPending}
      onClick={() => {
        change.mutate(undefined)
      }}
    >
      {branch.protected ? 'End protection' : 'Protect'}
    </Button>
  )
}

export function BranchPage() {
  const { projectId, branchId } = useParams({ from: '/app/projects/$projectId/branches/$branchId' })
  const { project } = useSuspenseQuery(projectQuery(projectId)).data
  const { branch } = useSuspenseQuery(branchQuery(projectId, branchId)).data
  const { branches } = useSuspenseQuery(branchesQuery(projectId)).data
  const { endpoints } = useSuspenseQuery(endpointsQuery(projectId)).data
  const [ask, setAsk] = useState<BranchAsk | null>(null)
  const navigate = useNavigate()
  const parent = branches.find((each) => each.id === branch.parent_id)
  const limit = quotaOf(project)
  const running = endpoints.some((endpoint) => endpoint.branch_id === branch.id)
  return (
    <>
      <PageHeader
        above={
          <Link to="/projects/$projectId" params={{ projectId }} className="underline">
            {project.name}
          </Link>
        }
        title={branch.name}
        badge={
          <>
            <StateBadge state={branch.current_state} pending={branch.pending_state} />
            {branch.default && <Badge tone="accent">default</Badge>}
            {branch.protected && <Badge>protected</Badge>}
          </>
        }
        note={
          <>
            {branch.parent_id && (
              <>
                from{' '}
                {parent ? (
                  <BranchLink projectId={projectId} id={parent.id}>
                    {parent.name}
                  </BranchLink>
                ) : (
                  branch.parent_id
                )}{' '}
                at {branch.parent_lsn ?? 'its newest'} ·{' '}
              </>
            )}
            <code>{branch.id}</code>
          </>
        }
        actions={
          <>
            <Button
              needs="works"
              variant="primary"
              onClick={() => {
                setAsk({ what: 'branch', branch })
              }}
            >
              Branch
            </Button>
            <Button
              needs="works"
              disabledReason={restoreRefusal(branch)}
              onClick={() => {
                setAsk({ what: 'restore', branch })
              }}
            >
              Restore
            </Button>
            {branch.parent_id && (
              <Button
                needs="works"
                disabledReason={detachRefusal(branch)}
                onClick={() => {
                  setAsk({ what: 'detach', branch })
                }}
              >
                Detach
              </Button>
            )}
            <Protect projectId={projectId} branch={branch} />
            <Button
              needs="works"
              variant="danger"
              disabledReason={deleteRefusal(branch, branchesBelow(branches, branch.id))}
              onClick={() => {
                setAsk({ what: 'delete', branch })
              }}
            >
              Delete
            </Button>
          </>
        }
      />
      <div className="grid gap-4">
        {running && <ConnectionString projectId={projectId} branch={branch} />}
        <Card title="Computes">
          <Computes projectId={projectId} branch={branch} endpoints={endpoints} />
        </Card>
        <RolesAndDatabases projectId={projectId} branchId={branch.id} />
        <BranchCommits projectId={projectId} branch={branch} endpoints={endpoints} />
        <Card
          title="History"
          note={`What it can be restored to or branched from. The project keeps ${span(project.history_retention_seconds)}.`}
        >
          <History projectId={projectId} branch={branch} since={project.created_at} />
        </Card>
        <BranchSafekeepers projectId={projectId} branch={branch} />
        <Card title="Storage" note="Counted by storage.">
          <Stats>
            <Stat
              label="Data"
              value={bytes(branch.logical_size)}
              note="at the newest LSN, indexes and system tables included"
            />
            <Stat
              label="History"
              value={bytes(branch.history_size)}
              note="WAL of the changes that it keeps by itself"
            />
            <Stat label="Quota" value={limit > 0 ? bytes(limit) : 'none'} note="of each branch of the project" />
          </Stats>
          {limit > 0 && (
            <div className="mt-3">
              <QuotaMeter name={branch.name} used={branch.logical_size} limit={limit} />
            </div>
          )}
        </Card>
        <Operations projectId={projectId} branches={branches} branchId={branch.id} />
      </div>
      {ask && (
        <BranchDialogs
          projectId={projectId}
          since={project.created_at}
          ask={ask}
          branches={branches}
          endpoints={endpoints}
          onClose={() => {
            setAsk(null)
          }}
          onDeleted={() => void navigate({ to: '/projects/$projectId', params: { projectId } })}
        />
      )}
    </>
  )
}
