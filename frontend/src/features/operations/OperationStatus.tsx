import type { Operation } from '~/api/types'
import { StateBadge } from '~/shared/StateBadge'
import { Badge } from '~/ui/Badge'

/** How an operation stands; one that could not do all of it says so. */
export function OperationStatus({ operation }: { operation: Operation }) {
  if (operation.status === 'finished' && operation.warning) {
    return (
      <Badge tone="warn" title={operation.warning}>
        finished, with a warning
      </Badge>
    )
  }
  if (operation.status === 'scheduling') return <Badge>waiting</Badge>
  return <StateBadge state={operation.status} reason={operation.error} />
}
