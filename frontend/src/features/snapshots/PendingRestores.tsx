import type { Branch } from '~/api/types'
import { Button } from '~/ui/Button'

import type { SnapshotAsk } from './ask'

/** Branches that restores made to be looked at, each with a way to put it in the place it is meant for. */
export function PendingRestores({ branches, onAsk }: { branches: Branch[]; onAsk: (ask: SnapshotAsk) => void }) {
  const rows = branches.flatMap((branch) => {
    const target = branches.find((each) => each.id === branch.restored_as)
    return target ? [{ branch, target }] : []
  })
  if (rows.length === 0) return null
  return (
    <ul aria-label="Restores to look at" className="mb-4 space-y-2">
      {rows.map(({ branch, target }) => (
        <li key={branch.id} className="flex flex-wrap items-center gap-2 rounded-md bg-raised px-3 py-2 text-sm">
          <span>
            <strong className="font-medium">{branch.name}</strong> has a snapshot’s state and can replace{' '}
            <strong className="font-medium">{target.name}</strong>.
          </span>
          <Button
            needs="works"
            className="ml-auto"
            aria-label={`Put ${branch.name} in place of ${target.name}`}
            disabledReason={branch.current_state === 'ready' ? null : 'It is still being made.'}
            onClick={() => {
              onAsk({ what: 'finalize', branch })
            }}
          >
            Put in place
          </Button>
        </li>
      ))}
    </ul>
  )
}
