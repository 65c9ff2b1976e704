import { useState } from 'react'

import type { Branch, Endpoint } from '~/api/types'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'
import { TextField } from '~/ui/Field'

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
  const [typed, setTyped] = useState('')
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
    <Dialog
      onClose={onClose}
      title={below.length > 0 ? `Delete ${branch.name} and all below it?` : `Delete ${branch.name}?`}
      description={
        below.length > 0
          ? 'Branches were made from it and need its data, so they go with it. This cannot be undone.'
          : 'Its data and its history go for good. This cannot be undone.'
      }
    >
      <ul
        aria-label="What goes"
        className="mb-3 max-h-48 list-disc space-y-0.5 overflow-y-auto rounded-md bg-raised py-2 pr-3 pl-7 text-sm"
      >
        {leaving(branch, below, endpoints).map((each) => (
          <li key={each.id}>{each.text}</li>
        ))}
      </ul>
      <TextField
        label={`Type ${branch.name} to confirm`}
        value={typed}
        onChange={(event) => {
          setTyped(event.target.value)
        }}
      />
      <div className="flex flex-wrap justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button
          variant="danger"
          disabled={typed !== branch.name}
          busy={remove.isPending}
          onClick={() => {
            remove.mutate(undefined)
          }}
        >
          {below.length > 0 ? `Delete ${String(below.length + 1)} branches` : 'Delete for good'}
        </Button>
      </div>
    </Dialog>
  )
}
