import { longest } from '~/api/bounds'
import { zDatabaseCreate } from '~/api/generated/zod/zod.gen'
import type { BranchDatabase, Role } from '~/api/types'
import { submits, useAppForm } from '~/shared/form'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'

import { type BranchPlace, changeOwner, createDatabase } from './queries'

type Props = { place: BranchPlace; roles: Role[]; onClose: () => void }

const options = (roles: Role[]) =>
  roles.map((role) => (
    <option key={role.name} value={role.name}>
      {role.name}
    </option>
  ))

export function DatabaseCreateForm({ place, roles, onClose }: Props) {
  const create = useAction(
    (input: { name: string; owner: string }) => createDatabase(place, input.name, input.owner),
    {
      done: 'Database is being created',
      invalidate: [projectKeys.one(place.projectId)],
      onDone: onClose,
    },
  )
  const form = useAppForm({
    defaultValues: { name: '', owner: roles[0]?.name ?? '' },
    onSubmit: ({ value }) => {
      create.mutate({ name: value.name.trim(), owner: value.owner })
    },
  })
  return (
    <Dialog onClose={onClose} title="New database" description="Its owner may do everything in it.">
      <form onSubmit={submits(form)}>
        <form.AppField name="name">
          {(field) => <field.Text label="Name" required maxLength={longest(zDatabaseCreate.shape.name)} />}
        </form.AppField>
        <form.AppField name="owner">
          {(field) => <field.Select label="Owner">{options(roles)}</field.Select>}
        </form.AppField>
        <Button
          variant="primary"
          type="submit"
          busy={create.isPending}
          disabledReason={roles.length === 0 ? 'A database needs an owner: create a role first.' : null}
        >
          Create database
        </Button>
      </form>
    </Dialog>
  )
}

export function ChangeOwnerForm({ place, roles, database, onClose }: Props & { database: BranchDatabase }) {
  const change = useAction((owner: string) => changeOwner(place, database.name, owner), {
    done: `${database.name} has another owner`,
    invalidate: [projectKeys.one(place.projectId)],
    onDone: onClose,
  })
  const form = useAppForm({
    defaultValues: { owner: database.owner_name },
    onSubmit: ({ value }) => {
      change.mutate(value.owner)
    },
  })
  return (
    <Dialog
      onClose={onClose}
      title={`Owner of ${database.name}`}
      description="Tables and other objects keep their own owners."
    >
      <form onSubmit={submits(form)}>
        <form.AppField name="owner">
          {(field) => <field.Select label="Owner">{options(roles)}</field.Select>}
        </form.AppField>
        <form.Subscribe selector={(state) => state.values.owner}>
          {(owner) => (
            <Button
              variant="primary"
              type="submit"
              busy={change.isPending}
              disabledReason={owner === database.owner_name ? 'It is the owner already.' : null}
            >
              Change owner
            </Button>
          )}
        </form.Subscribe>
      </form>
    </Dialog>
  )
}
