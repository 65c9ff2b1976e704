import type { Branch, Endpoint } from '~/api/types'

import { branchesBelow } from './branch-tree'
import { BranchCreateForm } from './BranchCreateForm'
import { BranchDeleteForm } from './BranchDeleteForm'
import { BranchDetachForm } from './BranchDetachForm'
import { BranchRestoreForm } from './BranchRestoreForm'
import type { BranchAsk } from './BranchTree'

type Props = {
  projectId: string
  /** When the project was made, before which it has no history. */
  since: string
  ask: BranchAsk
  branches: Branch[]
  endpoints: Endpoint[]
  onClose: () => void
  onDeleted?: () => void
}

/** The form for what was asked of a branch. */
export function BranchDialogs({ projectId, since, ask, branches, endpoints, onClose, ...rest }: Props) {
  const { branch } = ask
  if (ask.what === 'branch') return <BranchCreateForm {...{ projectId, since, branches, onClose }} parent={branch} />
  if (ask.what === 'restore')
    return <BranchRestoreForm {...{ projectId, since, branch, branches, endpoints, onClose }} />
  if (ask.what === 'detach') {
    const parent = branches.find((each) => each.id === branch.parent_id)
    return <BranchDetachForm {...{ projectId, branch, onClose }} parent={parent?.name ?? 'its parent'} />
  }
  return (
    <BranchDeleteForm
      {...{ projectId, branch, endpoints, onClose }}
      below={branchesBelow(branches, branch.id)}
      {...rest}
    />
  )
}
