import { Link } from '@tanstack/react-router'
import { CornerDownRight, GitBranch } from 'lucide-react'
import { useState } from 'react'

import type { Branch, Endpoint } from '~/api/types'
import { ComputeRow } from '~/features/computes/ComputeRow'
import { createEndpoint } from '~/features/computes/endpoint-queries'
import { ago, bytes, time } from '~/lib/format'
import { projectKeys } from '~/shared/project-keys'
import { StateBadge } from '~/shared/StateBadge'
import { useAction } from '~/shared/use-action'
import { useNow } from '~/shared/use-now'
import { Badge } from '~/ui/Badge'
import { Button } from '~/ui/Button'
import { SelectField } from '~/ui/Field'

import { type BranchNode, type BranchOrder, branchForest, flatten } from './branch-tree'
import { deleteRefusal, restoreRefusal } from './can'
import { QuotaMeter } from './QuotaMeter'

export type BranchAsk = { what: 'branch' | 'restore' | 'detach' | 'delete'; branch: Branch }
type Shared = { projectId: string; endpoints: Endpoint[]; quota: number; onAsk: (ask: BranchAsk) => void }

function BranchRow({ projectId, node, endpoints, quota, onAsk }: Shared & { node: BranchNode }) {
  const { branch } = node
  const now = useNow()
  const add = useAction(() => createEndpoint(projectId, branch.id), {
    done: 'Compute is being created',
    invalidate: [projectKeys.one(projectId)],
  })
  const own = endpoints.filter((endpoint) => endpoint.branch_id === branch.id)
  const below = flatten(node.children).map((each) => each.branch)
  return (
    <li
      className="border-l-2 border-line py-2 pl-3"
      style={{ marginLeft: `min(${String(node.depth * 1.25)}rem, ${String(node.depth * 4)}vw)` }}
    >
      <div className="flex flex-wrap items-center gap-2">
        {node.depth === 0 ? <GitBranch aria-hidden size={15} /> : <CornerDownRight aria-hidden size={15} />}
        <Link
          to="/projects/$projectId/branches/$branchId"
          params={{ projectId, branchId: branch.id }}
          className="font-medium text-accent underline"
        >
          {branch.name}
        </Link>
        {branch.default && <Badge tone="accent">default</Badge>}
        {branch.protected && <Badge>protected</Badge>}
        <StateBadge state={branch.current_state} pending={branch.pending_state} />
        <span className="text-xs text-muted" title={time(branch.created_at)}>
          {branch.parent_lsn ? `from ${branch.parent_lsn}, ` : ''}made {ago(branch.created_at, now)}
        </span>
        {branch.logical_size != null && (
          <span
            className="text-xs text-muted"
            title="Data at the newest LSN, and the WAL of the history this branch keeps by itself; counted by storage"
          >
            {bytes(branch.logical_size)} data, {bytes(branch.history_size)} history
          </span>
        )}
        <span className="ml-auto flex flex-wrap gap-2">
          {own.length === 0 && (
            <Button
              needs="works"
              busy={add.isPending}
              onClick={() => {
                add.mutate(undefined)
              }}
            >
              Add compute
            </Button>
          )}
          <Button
            needs="works"
            onClick={() => {
              onAsk({ what: 'branch', branch })
            }}
          >
            Branch
          </Button>
          {/* A narrow screen has no room for all; the branch's page has them. */}
          <span className="hidden sm:block">
            <Button
              needs="works"
              disabledReason={restoreRefusal(branch)}
              onClick={() => {
                onAsk({ what: 'restore', branch })
              }}
            >
              Restore
            </Button>
          </span>
          <Button
            needs="works"
            variant="danger"
            disabledReason={deleteRefusal(branch, below)}
            onClick={() => {
              onAsk({ what: 'delete', branch })
            }}
          >
            Delete
          </Button>
        </span>
      </div>
      {quota > 0 && (
        <div className="mt-1.5">
          <QuotaMeter name={branch.name} used={branch.logical_size} limit={quota} />
        </div>
      )}
      {own.map((endpoint) => (
        <ComputeRow key={endpoint.id} projectId={projectId} endpoint={endpoint} />
      ))}
    </li>
  )
}

/** Of fewer branches no two can be siblings, but for those whose parent is not listed. */
const ORDERED_FROM = 3

/** Branches as the tree they are, each with its computes and what can be done with it. */
export function BranchTree({ branches, ...shared }: Shared & { branches: Branch[] }) {
  const [order, setOrder] = useState<BranchOrder>('created')
  return (
    <>
      {branches.length >= ORDERED_FROM && (
        <div className="ml-auto w-44">
          <SelectField
            label="Order of siblings"
            value={order}
            onChange={(event) => {
              setOrder(event.target.value as BranchOrder)
            }}
          >
            <option value="created">Oldest first</option>
            <option value="name">By name</option>
            <option value="size">Most data first</option>
          </SelectField>
        </div>
      )}
      <ul aria-label="Branches" className="space-y-1">
        {flatten(branchForest(branches, order)).map((node) => (
          <BranchRow key={node.branch.id} node={node} {...shared} />
        ))}
      </ul>
    </>
  )
}
