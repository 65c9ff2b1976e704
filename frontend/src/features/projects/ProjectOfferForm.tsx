import { useState } from 'react'

import { submits, useAppForm } from '~/shared/form'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'
import { SecretOnce } from '~/ui/SecretOnce'

import { offerProject } from './queries'

const HOUR_SECONDS = 3600
const TIMES = [
  { seconds: HOUR_SECONDS, label: 'an hour' },
  { seconds: 24 * HOUR_SECONDS, label: 'a day' },
  { seconds: 7 * 24 * HOUR_SECONDS, label: 'a week' },
]

type OfferProps = { project: { id: string; name: string }; onClose: () => void }

/** Offers a project to whoever is told the code that is shown then. */
export function ProjectOfferForm({ project, onClose }: OfferProps) {
  const [code, setCode] = useState<string | null>(null)
  const offer = useAction((seconds: number) => offerProject(project.id, seconds), {
    done: `${project.name} is offered`,
    invalidate: [],
    onDone: (made) => {
      setCode(codeOf(made))
    },
  })
  const form = useAppForm({
    defaultValues: { seconds: String(24 * HOUR_SECONDS) },
    onSubmit: ({ value }) => {
      offer.mutate(Number(value.seconds))
    },
  })
  if (code !== null)
    return (
      <SecretOnce
        title={`${project.name} is offered`}
        description="An admin or member of the other organization gives this code at “Accept a project”. It is shown this once."
        label="code of the offer"
        secret={code}
        onClose={onClose}
      />
    )
  return (
    <Dialog
      onClose={onClose}
      title={`Transfer ${project.name}?`}
      description="Whoever gets the code can take the project, with all branches, snapshots and data, into their organization. Its computes run on; API keys for this project alone are revoked then."
    >
      <form onSubmit={submits(form)}>
        <form.AppField name="seconds">
          {(field) => (
            <field.Select label="The offer lasts">
              {TIMES.map(({ seconds, label }) => (
                <option key={seconds} value={String(seconds)}>
                  {label}
                </option>
              ))}
            </field.Select>
          )}
        </form.AppField>
        <Button variant="primary" type="submit" busy={offer.isPending}>
          Make the offer
        </Button>
      </form>
    </Dialog>
  )
}

const codeOf = (offer: { project_id: string; id: string }) => `${offer.project_id}/${offer.id}`
