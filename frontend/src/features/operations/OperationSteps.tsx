import { useQueries, useQueryClient } from '@tanstack/react-query'
import { useEffect } from 'react'

import type { Operation } from '~/api/types'
import { seconds } from '~/lib/format'
import { projectKeys } from '~/shared/project-keys'
import { Notice } from '~/ui/Notice'

import { OperationStatus } from './OperationStatus'
import { isOpen, operationQuery } from './queries'

type Props = {
  projectId: string
  /** In order; each with what it does. */
  steps: { operation: Operation; what: string }[]
  /** Said once all have ended well. */
  done: string
}

/** The operations that an answer promised, followed to their end. */
export function OperationSteps({ projectId, steps, done }: Props) {
  const asked = useQueries({ queries: steps.map((step) => operationQuery(projectId, step.operation.id)) })
  const rows = steps.map((step, index) => ({ ...step, now: asked[index]?.data?.operation ?? step.operation }))
  const finished = rows.every((row) => row.now.status === 'finished')
  const broken = rows.find((row) => !isOpen(row.now.status) && row.now.status !== 'finished')
  const queryClient = useQueryClient()
  useEffect(() => {
    if (finished) void queryClient.invalidateQueries({ queryKey: projectKeys.one(projectId) })
  }, [finished, projectId, queryClient])
  const warnings = rows.flatMap((row) => (row.now.status === 'finished' && row.now.warning ? [row.now.warning] : []))
  return (
    <>
      <ol aria-label="Progress" className="mb-3 divide-y divide-line">
        {rows.map((row) => (
          <li key={row.operation.id} className="flex flex-wrap items-center justify-between gap-2 py-2 text-sm">
            <span>{row.what}</span>
            <span className="tabular flex items-center gap-2 text-xs text-muted">
              {row.now.status === 'scheduling' ? '' : seconds(row.now.total_duration_ms / 1000)}
              <OperationStatus operation={row.now} />
            </span>
          </li>
        ))}
      </ol>
      <div className="grid gap-2">
        {broken && <Notice tone="bad">{broken.now.error ?? `${broken.what}: ${broken.now.status}`}</Notice>}
        {warnings.map((warning) => (
          <Notice key={warning} tone="warn">
            {warning}
          </Notice>
        ))}
        {finished && <Notice>{done}</Notice>}
      </div>
    </>
  )
}
