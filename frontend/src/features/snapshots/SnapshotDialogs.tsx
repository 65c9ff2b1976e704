import type { Branch, Snapshot } from '~/api/types'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { DeleteDialog } from '~/ui/DeleteDialog'
import { Dialog } from '~/ui/Dialog'

import type { SnapshotAsk } from './ask'
import { deleteSnapshot, finalizeRestore } from './queries'
import { SnapshotCreateForm } from './SnapshotCreateForm'
import { SnapshotRestoreForm } from './SnapshotRestoreForm'

type Props = {
  projectId: string
  /** When the project was made, before which it has no history. */
  since: string
  ask: SnapshotAsk
  branches: Branch[]
  onClose: () => void
}

/** The form for what was asked of snapshots. */
export function SnapshotDialogs({ projectId, since, ask, branches, onClose }: Props) {
  switch (ask.what) {
    case 'create':
      return <SnapshotCreateForm {...{ projectId, since, branches, onClose }} />
    case 'restore':
      return <SnapshotRestoreForm {...{ projectId, branches, onClose }} snapshot={ask.snapshot} />
    case 'delete':
      return <SnapshotDelete {...{ projectId, onClose }} snapshot={ask.snapshot} />
    case 'finalize':
      return <Finalize {...{ projectId, branches, onClose }} branch={ask.branch} />
  }
}

type Closing = { projectId: string; onClose: () => void }

function SnapshotDelete({ projectId, snapshot, onClose }: Closing & { snapshot: Snapshot }) {
  const remove = useAction(() => deleteSnapshot(projectId, snapshot.id), {
    done: `Snapshot ${snapshot.name} is being deleted`,
    invalidate: [projectKeys.one(projectId)],
    onDone: onClose,
  })
  return (
    <DeleteDialog
      name={snapshot.name}
      title={`Delete ${snapshot.name}?`}
      description="The state it keeps is gone for good. Branches that were restored from it stay."
      busy={remove.isPending}
      onDelete={() => {
        remove.mutate(undefined)
      }}
      onClose={onClose}
    />
  )
}

function Finalize({ projectId, branch, branches, onClose }: Closing & { branch: Branch; branches: Branch[] }) {
  const target = branches.find((each) => each.id === branch.restored_as)?.name ?? 'the branch it is to replace'
  const finalize = useAction(() => finalizeRestore(projectId, branch.id), {
    done: `${target} is being given the state of ${branch.name}`,
    invalidate: [projectKeys.one(projectId)],
    onDone: onClose,
  })
  return (
    <Dialog
      onClose={onClose}
      title={`Put ${branch.name} in place of ${target}?`}
      description={
        `${target} gets what ${branch.name} holds by now and keeps its id, its addresses and its passwords. What it ` +
        'was stays as a branch of its own. Connections to both end once.'
      }
    >
      <div className="flex flex-wrap justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button
          variant="primary"
          busy={finalize.isPending}
          onClick={() => {
            finalize.mutate(undefined)
          }}
        >
          Put it in place
        </Button>
      </div>
    </Dialog>
  )
}
