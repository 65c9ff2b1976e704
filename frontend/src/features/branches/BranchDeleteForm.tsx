import type { Branch, Endpoint } from '~/api/types'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { DeleteDialog } from '~/ui/DeleteDialog'

import { leaving } from './can'
import { deleteBranch } from './queries'

type Props = {
  projectId: string
  branch: Branch
  below: Branch[]
  endpoints: Endpoint[]
  onClose: () => void
  onDeleted?: () => void
}

/** Lists what goes. With branches below, the name has to be typed, since those go too. */
export function BranchDeleteForm({ projectId, branch, below, endpoints, onClose, onDeleted }: Props) {
  // Where none was listed, one that is made meanwhile makes the API refuse.
  const children = below.length > 0 ? 'delete' : 'refuse'
  const remove = useAction(() => deleteBranch(projectId, branch.id, children), {
    done:
      below.length > 0
        ? `${branch.name} and ${String(below.length)} below it are being deleted`
        : `Branch ${branch.name} is being deleted`,
    invalidate: [projectKeys.one(projectId)],
    onDone: () => {
      onClose()
      onDeleted?.()
    },
  })
  return (
    <DeleteDialog
      name={branch.name}
      title={below.length > 0 ? `Delete ${branch.name} and all below it?` : `Delete ${branch.name}?`}
      description={
        below.length > 0
          ? 'Branches were made from it and need its data, so they go with it. This cannot be undone.'
          : 'Its data and its history go for good. This cannot be undone.'
      }
      {...(below.length > 0 ? { action: `Delete ${String(below.length + 1)} branches` } : {})}
      busy={remove.isPending}
      onDelete={() => {
        remove.mutate(undefined)
      }}
      onClose={onClose}
    >
      <ul
        aria-label="What goes"
        className="mb-3 max-h-48 list-disc space-y-0.5 overflow-y-auto rounded-md bg-raised py-2 pr-3 pl-7 text-sm"
      >
        {leaving(branch, below, endpoints).map((each) => (
          <li key={each.id}>{each.text}</li>
        ))}
      </ul>
    </DeleteDialog>
  )
}
