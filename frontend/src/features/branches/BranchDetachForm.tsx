import { useState } from 'react'

import type { Branch, Operation } from '~/api/types'
import { OperationSteps } from '~/features/operations/OperationSteps'
import { bytes } from '~/lib/format'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'

import { detachBranch } from './queries'

type Props = { projectId: string; branch: Branch; parent: string; onClose: () => void }

/** Makes a branch independent of its parent, and follows that to its end. */
export function BranchDetachForm({ projectId, branch: given, parent: name, onClose }: Props) {
  // As they were when this was opened: in the end the branch has no parent.
  const [{ branch, parent }] = useState({ branch: given, parent: name })
  const [operations, setOperations] = useState<Operation[] | null>(null)
  const detach = useAction(() => detachBranch(projectId, branch.id), {
    done: `${branch.name} is being detached`,
    invalidate: [projectKeys.one(projectId)],
    onDone: (answer) => {
      setOperations(answer.operations)
    },
  })
  return (
    <Dialog
      onClose={onClose}
      title={operations ? `Detaching ${branch.name}` : `Detach ${branch.name} from ${parent}?`}
      description={
        operations
          ? 'It goes on when this is closed; the operations of the project show it.'
          : `So that ${parent} can be deleted, or let go of its history.`
      }
    >
      {operations ? (
        <OperationSteps
          projectId={projectId}
          steps={operations.map((operation) => ({ operation, what: `Copy what ${branch.name} reads there` }))}
          done={`${branch.name} is independent of ${parent}.`}
        />
      ) : (
        <ul className="mb-4 list-disc space-y-0.5 rounded-md bg-raised py-2 pr-3 pl-7 text-sm">
          <li>
            Storage copies what {branch.name} reads through its ancestors into it: its {bytes(branch.logical_size)} of
            data, and the history it has from there. That takes space until the history goes.
          </li>
          <li>Computes run on meanwhile, and everything can be restored as before.</li>
          <li>{branch.name} has no parent from then on. Its own branches stay its branches.</li>
        </ul>
      )}
      <div className="mt-4 flex flex-wrap justify-end gap-2">
        {operations ? (
          <Button variant="primary" onClick={onClose}>
            Close
          </Button>
        ) : (
          <>
            <Button onClick={onClose}>Cancel</Button>
            <Button
              variant="primary"
              busy={detach.isPending}
              onClick={() => {
                detach.mutate(undefined)
              }}
            >
              Detach {branch.name}
            </Button>
          </>
        )}
      </div>
    </Dialog>
  )
}
