import { useStore } from '@tanstack/react-form'

import type { Project } from '~/api/types'
import { bytesPerSecond } from '~/lib/format'
import { submits, useAppForm, wrong } from '~/shared/form'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Dialog } from '~/ui/Dialog'

import { rateBytes, rateField, walRateOf } from './amounts'
import { LimitButtons } from './LimitButtons'
import { updateProject } from './queries'

/** How much WAL each compute of a project may write a second. */
export function WalRateForm({ project, onClose }: { project: Project; onClose: () => void }) {
  const before = walRateOf(project)
  const form = useAppForm({
    defaultValues: { amount: rateField(before), limited: before > 0 },
    validators: {
      onChange: ({ value }) => {
        const read = rateBytes(value.amount)
        return wrong({ amount: value.limited && value.amount !== '' && 'error' in read ? read.error : null })
      },
    },
    onSubmit: () => {
      if (limit !== null && limit !== before) change.mutate(limit)
    },
  })
  const { limited, amount } = useStore(form.store, (state) => state.values)
  const read = rateBytes(amount)
  const limit = !limited ? 0 : 'bytes' in read ? read.bytes : null
  const change = useAction((walBytesPerSecond: number) => updateProject(project.id, { walBytesPerSecond }), {
    done: limit === 0 ? 'The limit of WAL is being lifted' : 'The limit of WAL is being changed',
    invalidate: [projectKeys.one(project.id)],
    onDone: onClose,
  })
  return (
    <Dialog
      onClose={onClose}
      title="Limit of WAL"
      description={`How much WAL each compute of ${project.name} may write a second.`}
    >
      <form onSubmit={submits(form)}>
        <form.AppField name="limited">
          {(field) => <field.Check label="Limit the WAL of each compute" />}
        </form.AppField>
        {limited && (
          <form.AppField name="amount">
            {(field) => <field.Text label="MiB a second" inputMode="decimal" required />}
          </form.AppField>
        )}
        <p className="my-3 text-xs text-muted">
          A compute at its limit loses nothing and fails nothing: its commits wait for their turn. Running computes
          have a new limit at once. With image pushdown the same limit lets through several times as many
          transactions.
          {before > 0 && ` Now ${bytesPerSecond(before)}.`}
        </p>
        <LimitButtons what="limit" limit={limit} before={before} busy={change.isPending} onCancel={onClose} />
      </form>
    </Dialog>
  )
}
