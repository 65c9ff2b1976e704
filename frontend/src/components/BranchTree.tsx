import { Link } from '@tanstack/react-router'
import { CornerDownRight, GitBranch } from 'lucide-react'

import { createEndpoint, startEndpoint, suspendEndpoint } from '~/api/queries/endpoints'
import { projectKeys } from '~/api/queries/projects'
import { deleteBranch } from '~/api/queries/branches'
import type { Branch, Endpoint } from '~/api/types'
import { ago, bytes, time } from '~/lib/format'
import { Badge } from '~/ui/Badge'
import { Button } from '~/ui/Button'

import { type BranchNode, branchForest, flatten } from './branch-tree'
import { endpointCan } from './endpoint-can'
import { StateBadge } from './StateBadge'
import { useAction } from './use-action'
import { useNow } from './use-now'

function ComputeRow({ projectId, endpoint }: { projectId: string; endpoint: Endpoint }) {
  const invalidate = [projectKeys.one(projectId)]
  const start = useAction(() => startEndpoint(projectId, endpoint.id), { done: 'Compute is starting', invalidate })
  const suspend = useAction(() => suspendEndpoint(projectId, endpoint.id), { done: 'Compute is suspending', invalidate })
  const stopped = endpoint.current_state !== 'active'
  return (
    <div className="mt-2 flex flex-wrap items-center gap-2 rounded-md bg-raised px-3 py-1.5">
      <Link to="/computes/$computeId" params={{ computeId: endpoint.id }} className="font-mono text-xs text-accent underline">
        {endpoint.id}
      </Link>
      <StateBadge state={endpoint.current_state} pending={endpoint.pending_state} />
      <span className="ml-auto">
        {stopped ? (
          <Button disabledReason={endpointCan.start(endpoint)} busy={start.isPending} onClick={() => { start.mutate(undefined) }}>
            Start
          </Button>
        ) : (
          <Button disabledReason={endpointCan.suspend(endpoint)} busy={suspend.isPending} onClick={() => { suspend.mutate(undefined) }}>
            Suspend
          </Button>
        )}
      </span>
    </div>
  )
}

function BranchRow({ projectId, node, endpoints, onBranch }: { projectId: string; node: BranchNode; endpoints: Endpoint[]; onBranch: (branch: Branch) => void }) {
  const { branch } = node
  const now = useNow()
  const invalidate = [projectKeys.one(projectId)]
  const add = useAction(() => createEndpoint(projectId, branch.id), { done: 'Compute is being created', invalidate })
  const remove = useAction(() => deleteBranch(projectId, branch.id), { done: `Branch ${branch.name} is being deleted`, invalidate })
  const own = endpoints.filter((endpoint) => endpoint.branch_id === branch.id)
  const refusal = branch.default ? 'The default branch goes with its project.' : node.children.length > 0 ? 'Delete its child branches first.' : null
  return (
    <li className="border-l-2 border-line py-2 pl-3" style={{ marginLeft: `${String(node.depth * 1.25)}rem` }}>
      <div className="flex flex-wrap items-center gap-2">
        {node.depth === 0 ? <GitBranch aria-hidden size={15} /> : <CornerDownRight aria-hidden size={15} />}
        <span className="font-medium">{branch.name}</span>
        {branch.default && <Badge tone="accent">default</Badge>}
        <StateBadge state={branch.current_state} pending={branch.pending_state} />
        <span className="text-xs text-muted" title={time(branch.created_at)}>
          {branch.parent_lsn ? `from ${branch.parent_lsn}, ` : ''}
          {ago(branch.created_at, now)}
        </span>
        {branch.logical_size != null && (
          <span className="text-xs text-muted" title="Data at the newest LSN, and the WAL of the history this branch keeps by itself; counted by storage">
            {bytes(branch.logical_size)} data, {bytes(branch.history_size)} history
          </span>
        )}
        <span className="ml-auto flex gap-2">
          <Button onClick={() => { onBranch(branch) }}>Branch</Button>
          {own.length === 0 && (
            <Button busy={add.isPending} onClick={() => { add.mutate(undefined) }}>
              Add compute
            </Button>
          )}
          <Button variant="danger" disabledReason={refusal} busy={remove.isPending} onClick={() => { remove.mutate(undefined) }}>
            Delete
          </Button>
        </span>
      </div>
      {own.map((endpoint) => (
        <ComputeRow key={endpoint.id} projectId={projectId} endpoint={endpoint} />
      ))}
    </li>
  )
}

type Props = { projectId: string; branches: Branch[]; endpoints: Endpoint[]; onBranch: (branch: Branch) => void }

/** Branches as the tree they are, each with its computes and what can be done with it. */
export function BranchTree({ projectId, branches, endpoints, onBranch }: Props) {
  return (
    <ul aria-label="Branches" className="space-y-1">
      {flatten(branchForest(branches)).map((node) => (
        <BranchRow key={node.branch.id} projectId={projectId} node={node} endpoints={endpoints} onBranch={onBranch} />
      ))}
    </ul>
  )
}
