import { useState } from 'react'

import { longest } from '~/api/bounds'
import { zRoleCreate } from '~/api/generated/zod/zod.gen'
import { submits, useAppForm } from '~/shared/form'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'
import { SecretOnce } from '~/ui/SecretOnce'

import { type BranchPlace, createRole, resetPassword } from './queries'

type Props = { place: BranchPlace; onClose: () => void }

type Made = { name: string; password: string }

function PasswordOnce({ made, onClose }: { made: Made; onClose: () => void }) {
  return (
    <SecretOnce
      title={`Password of ${made.name}`}
      description="It takes effect on the running compute in a moment. The Connect panel shows it again."
      label={`password of ${made.name}`}
      secret={made.password}
      onClose={onClose}
    />
  )
}

/** A role by its name; Weir makes the password. */
export function RoleCreateForm({ place, onClose }: Props) {
  const [made, setMade] = useState<Made | null>(null)
  const create = useAction((name: string) => createRole(place, name), {
    done: 'Role created',
    invalidate: [projectKeys.one(place.projectId)],
    onDone: ({ role }) => {
      setMade({ name: role.name, password: role.password ?? '' })
    },
  })
  const form = useAppForm({
    defaultValues: { name: '' },
    onSubmit: ({ value }) => {
      create.mutate(value.name.trim())
    },
  })
  if (made) return <PasswordOnce made={made} onClose={onClose} />
  return (
    <Dialog onClose={onClose} title="New role" description="It can log in and owns what it makes.">
      <form onSubmit={submits(form)}>
        <form.AppField name="name">
          {(field) => <field.Text label="Name" required maxLength={longest(zRoleCreate.shape.name)} />}
        </form.AppField>
        <Button variant="primary" type="submit" busy={create.isPending}>
          Create role
        </Button>
      </form>
    </Dialog>
  )
}

export function PasswordResetForm({ place, name, onClose }: Props & { name: string }) {
  const [made, setMade] = useState<Made | null>(null)
  const reset = useAction(() => resetPassword(place, name), {
    done: `${name} has a new password`,
    invalidate: [projectKeys.one(place.projectId)],
    onDone: ({ role }) => {
      setMade({ name: role.name, password: role.password ?? '' })
    },
  })
  if (made) return <PasswordOnce made={made} onClose={onClose} />
  return (
    <Dialog
      onClose={onClose}
      title={`Reset the password of ${name}?`}
      description="The old password ends for new connections. Sessions that are open go on."
    >
      <div className="flex flex-wrap justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button
          variant="primary"
          busy={reset.isPending}
          onClick={() => {
            reset.mutate(undefined)
          }}
        >
          Reset password
        </Button>
      </div>
    </Dialog>
  )
}
