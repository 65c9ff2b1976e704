import { Link } from '@tanstack/react-router'
import { useState } from 'react'

import { ApiError } from '~/api/errors'
import type { Endpoint } from '~/api/types'
import { projectKeys } from '~/shared/project-keys'
import { StateBadge } from '~/shared/StateBadge'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'

import { endpointCan } from './can'
import { ComputeLoad } from './ComputeLoad'
import { startEndpoint, suspendEndpoint } from './endpoint-queries'
import { idleTimeText } from './idle-time'
import { IdleTimeForm } from './IdleTimeForm'
import { UnloggedRowsForm } from './UnloggedRowsForm'

type Props = {
  projectId: string
  endpoint: Endpoint
  /** Ask its agent for the load too; in a list of many it would be too many questions. */
  withLoad?: boolean
}

/** A branch's compute, and starting or suspending it. */
export function ComputeRow({ projectId, endpoint, withLoad = false }: Props) {
  const invalidate = [projectKeys.one(projectId)]
  const start = useAction(() => startEndpoint(projectId, endpoint.id), { done: 'Compute is starting', invalidate })
  const suspend = useAction(() => suspendEndpoint(projectId, endpoint.id), {
    done: 'Compute is suspending',
    invalidate,
    takes: (error) => {
      if (!(error instanceof ApiError) || error.code !== 'UNLOGGED_ROWS') return false
      setLoses(error.message)
      return true
    },
  })
  // Why a suspend was refused that would lose rows.
  const [loses, setLoses] = useState<string | null>(null)
  const [asking, setAsking] = useState(false)
  const stopped = endpoint.current_state !== 'active'
  return (
    <div className="mt-2 flex flex-wrap items-center gap-2 rounded-md bg-raised px-3 py-1.5">
      <Link
        to="/computes/$computeId"
        params={{ computeId: endpoint.id }}
        className="font-mono text-xs text-accent underline"
      >
        {endpoint.id}
      </Link>
      <StateBadge state={endpoint.current_state} pending={endpoint.pending_state} />
      {withLoad && <ComputeLoad endpoint={endpoint} />}
      <button
        type="button"
        className="text-xs text-muted underline"
        onClick={() => {
          setAsking(true)
        }}
      >
        Suspends when idle: {idleTimeText(endpoint.suspend_timeout_seconds)}
      </button>
      {asking && (
        <IdleTimeForm
          projectId={projectId}
          endpoint={endpoint}
          onClose={() => {
            setAsking(false)
          }}
        />
      )}
      {loses !== null && (
        <UnloggedRowsForm
          projectId={projectId}
          endpoint={endpoint}
          reason={loses}
          onClose={() => {
            setLoses(null)
          }}
        />
      )}
      <span className="ml-auto">
        {stopped ? (
          <Button
            needs="works"
            disabledReason={endpointCan.start(endpoint)}
            busy={start.isPending}
            onClick={() => {
              start.mutate(undefined)
            }}
          >
            Start
          </Button>
        ) : (
          <Button
            needs="works"
            disabledReason={endpointCan.suspend(endpoint)}
            busy={suspend.isPending}
            onClick={() => {
              suspend.mutate(undefined)
            }}
          >
            Suspend
          </Button>
        )}
      </span>
    </div>
  )
}
