import { useNavigate } from '@tanstack/react-router'

import { longest } from '~/api/bounds'
import { zProjectFields } from '~/api/generated/zod/zod.gen'
import { submits, useAppForm } from '~/shared/form'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'

import { createProject } from './queries'

/** A project by its name alone: the rest can be changed later. */
export function ProjectCreateForm({ onClose }: { onClose: () => void }) {
  const navigate = useNavigate()
  const create = useAction(createProject, {
    done: 'Project created; its compute is starting',
    invalidate: [projectKeys.all],
    onDone: ({ project }) => {
      onClose()
      void navigate({ to: '/projects/$projectId', params: { projectId: project.id } })
    },
  })
  const form = useAppForm({
    defaultValues: { name: '' },
    onSubmit: ({ value }) => {
      create.mutate(value.name.trim())
    },
  })
  return (
    <Dialog
      onClose={onClose}
      title="New project"
      description="A project gets a main branch and a read-write compute."
    >
      <form onSubmit={submits(form)}>
        <form.AppField name="name">
          {(field) => <field.Text label="Name" required maxLength={longest(zProjectFields.shape.name)} />}
        </form.AppField>
        <Button variant="primary" type="submit" busy={create.isPending}>
          Create project
        </Button>
      </form>
    </Dialog>
  )
}
