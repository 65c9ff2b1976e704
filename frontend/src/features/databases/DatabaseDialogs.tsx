import type { Role } from '~/api/types'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { DeleteDialog } from '~/ui/DeleteDialog'

import type { DatabaseAsk } from './ask'
import { ChangeOwnerForm, DatabaseCreateForm } from './DatabaseForms'
import { type BranchPlace, deleteDatabase, deleteRole } from './queries'
import { PasswordResetForm, RoleCreateForm } from './RoleForms'

type Props = { place: BranchPlace; ask: DatabaseAsk; roles: Role[]; onClose: () => void }

/** The form for what was asked of a branch's roles and databases. */
export function DatabaseDialogs({ place, ask, roles, onClose }: Props) {
  switch (ask.what) {
    case 'create-role':
      return <RoleCreateForm {...{ place, onClose }} />
    case 'reset-password':
      return <PasswordResetForm {...{ place, onClose }} name={ask.role.name} />
    case 'delete-role':
      return <RoleDelete {...{ place, onClose }} name={ask.role.name} />
    case 'create-database':
      return <DatabaseCreateForm {...{ place, roles, onClose }} />
    case 'change-owner':
      return <ChangeOwnerForm {...{ place, roles, onClose }} database={ask.database} />
    case 'delete-database':
      return <DatabaseDelete {...{ place, onClose }} name={ask.database.name} />
  }
}

type Named = { place: BranchPlace; name: string; onClose: () => void }

function RoleDelete({ place, name, onClose }: Named) {
  const remove = useAction(() => deleteRole(place, name), {
    done: `Role ${name} is being deleted`,
    invalidate: [projectKeys.one(place.projectId)],
    onDone: onClose,
  })
  return (
    <DeleteDialog
      name={name}
      title={`Delete role ${name}?`}
      description="Its sessions end. What it owns goes to the owner of the database that holds it."
      busy={remove.isPending}
      onDelete={() => {
        remove.mutate(undefined)
      }}
      onClose={onClose}
    />
  )
}

function DatabaseDelete({ place, name, onClose }: Named) {
  const remove = useAction(() => deleteDatabase(place, name), {
    done: `Database ${name} is being deleted`,
    invalidate: [projectKeys.one(place.projectId)],
    onDone: onClose,
  })
  return (
    <DeleteDialog
      name={name}
      title={`Delete database ${name}?`}
      description="Sessions in it end, and all that is in it goes. Branches made before keep theirs."
      busy={remove.isPending}
      onDelete={() => {
        remove.mutate(undefined)
      }}
      onClose={onClose}
    />
  )
}
