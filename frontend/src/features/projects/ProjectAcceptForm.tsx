import { useNavigate } from '@tanstack/react-router'

import { submits, useAppForm, wrong } from '~/shared/form'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'

import { acceptProject } from './queries'

/** The two ids of a code, or what is wrong with it. */
function parsed(code: string): { project: string; request: string } | null {
  const found = /^([a-z0-9-]{1,60})\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/.exec(code.trim())
  return found?.[1] && found[2] ? { project: found[1], request: found[2] } : null
}

/** Takes a project that another organization has offered. */
export function ProjectAcceptForm({ onClose }: { onClose: () => void }) {
  const navigate = useNavigate()
  const accept = useAction(acceptProject, {
    done: 'The project is your organization’s',
    invalidate: [projectKeys.all],
    onDone: (project) => {
      onClose()
      void navigate({ to: '/projects/$projectId', params: { projectId: project } })
    },
  })
  const form = useAppForm({
    defaultValues: { code: '' },
    validators: {
      onChange: ({ value }) =>
        wrong({ code: value.code && !parsed(value.code) ? 'Give the code as it was shown: PROJECT/OFFER.' : null }),
    },
    onSubmit: ({ value }) => {
      const code = parsed(value.code)
      if (code) accept.mutate(code)
    },
  })
  return (
    <Dialog
      onClose={onClose}
      title="Accept a project"
      description="It becomes your organization’s, with all that is in it. The organization’s quotas need room for it."
    >
      <form onSubmit={submits(form)}>
        <form.AppField name="code">
          {(field) => <field.Text label="Code of the offer" required spellCheck={false} autoComplete="off" />}
        </form.AppField>
        <Button variant="primary" type="submit" busy={accept.isPending}>
          Accept
        </Button>
      </form>
    </Dialog>
  )
}
