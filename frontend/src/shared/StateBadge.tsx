import { Badge } from '~/ui/Badge'

import { stateText, stateTone } from './states'

type Props = { state: string; pending?: string | null | undefined; reason?: string | null | undefined }

/** Where a thing is, or where it is going while it is on the way. */
export function StateBadge({ state, pending, reason }: Props) {
  if (pending) {
    return (
      <Badge tone="accent" title={`Now ${stateText(state)}`}>
        becoming {stateText(pending)}
      </Badge>
    )
  }
  return (
    <Badge tone={stateTone(state)} title={reason ?? undefined}>
      {stateText(state)}
    </Badge>
  )
}
