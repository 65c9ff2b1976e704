import type { Operation } from '~/api/types'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'

import { operationText } from './operation-text'
import { cancelOperation } from './queries'

/** Of an operation that can be cancelled. What it has done is undone, which takes a moment. */
export function CancelButton({ operation }: { operation: Operation }) {
  const cancel = useAction(cancelOperation, {
    done: `Cancelling: ${operationText(operation)}`,
    invalidate: [projectKeys.one(operation.project_id)],
  })
  return (
    <Button
      needs="works"
      aria-label={`Cancel ${operationText(operation)}`}
      busy={cancel.isPending}
      onClick={() => {
        cancel.mutate(operation)
      }}
    >
      Cancel
    </Button>
  )
}
