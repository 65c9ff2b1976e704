import { useState } from 'react'

import type { Endpoint } from '~/api/types'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'
import { Checkbox } from '~/ui/Field'
import { Notice } from '~/ui/Notice'

import { suspendEndpoint } from './endpoint-queries'

type Props = {
  projectId: string
  endpoint: Endpoint
  /** What the API said of the rows. */
  reason: string
  onClose: () => void
}

/** A suspend that loses rows of unlogged tables, once that is said. */
export function UnloggedRowsForm({ projectId, endpoint, reason, onClose }: Props) {
  const [agreed, setAgreed] = useState(false)
  const suspend = useAction(() => suspendEndpoint(projectId, endpoint.id, true), {
    done: 'Compute is suspending',
    invalidate: [projectKeys.one(projectId)],
    onDone: onClose,
  })
  return (
    <Dialog
      onClose={onClose}
      title="Suspend and lose rows?"
      description="Unlogged tables are on the compute alone: after its next start they are there and empty."
    >
      <div className="mb-3">
        <Notice tone="warn">{reason}</Notice>
      </div>
      <Checkbox label="The rows of these unlogged tables may be lost" checked={agreed} onChange={setAgreed} />
      <div className="mt-3 flex flex-wrap justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button
          variant="danger"
          disabledReason={agreed ? null : 'Say that the rows may be lost.'}
          busy={suspend.isPending}
          onClick={() => {
            suspend.mutate(undefined)
          }}
        >
          Suspend and lose them
        </Button>
      </div>
    </Dialog>
  )
}
