import { useStore } from '@tanstack/react-form'

import type { Branch, Project } from '~/api/types'
import { quotaOf } from '~/features/branches/can'
import { bytes, span } from '~/lib/format'
import { submits, useAppForm, wrong } from '~/shared/form'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'
import { Notice } from '~/ui/Notice'

import {
  LONGEST_WINDOW,
  SHORTEST_WINDOW,
  SIZE_UNITS,
  sizeBytes,
  sizeFields,
  WINDOW_UNITS,
  windowFields,
  windowSeconds,
} from './amounts'
import { LimitButtons } from './LimitButtons'
import { updateProject } from './queries'

const errorOf = (read: object | { error: string }): string | null => ('error' in read ? read.error : null)

type Props = { project: Project; branches: Branch[]; onClose: () => void }

/** How far back branches can be restored. A shorter window is confirmed by the project's name, as what it gives up is gone. */
export function HistoryWindowForm({ project, branches, onClose }: Props) {
  const before = project.history_retention_seconds
  const form = useAppForm({
    defaultValues: { ...windowFields(before), typed: '' },
    validators: { onChange: ({ value }) => wrong({ amount: errorOf(windowSeconds(value.amount, value.unit)) }) },
    onSubmit: () => {
      if (seconds !== null && blocked === null) change.mutate(seconds)
    },
  })
  const { amount, unit, typed } = useStore(form.store, (state) => state.values)
  const read = windowSeconds(amount, unit)
  const seconds = 'seconds' in read ? read.seconds : null
  const shorter = seconds !== null && seconds < before
  const history = branches.reduce((sum, branch) => sum + (branch.history_size ?? 0), 0)
  const change = useAction((historySeconds: number) => updateProject(project.id, { historySeconds }), {
    done: 'The history window is being changed',
    invalidate: [projectKeys.one(project.id)],
    onDone: onClose,
  })
  const blocked =
    seconds === before
      ? 'This is the window it has.'
      : shorter && typed !== project.name
        ? `Type ${project.name} to confirm.`
        : null
  return (
    <Dialog
      onClose={onClose}
      title="History window"
      description={`How far back every branch of ${project.name} can be restored or branched from.`}
    >
      <form onSubmit={submits(form)}>
        <div className="grid grid-cols-[minmax(0,1fr)_8rem] gap-3">
          <form.AppField name="amount">
            {(field) => <field.Text label="Keep history for" inputMode="decimal" required />}
          </form.AppField>
          <form.AppField name="unit">
            {(field) => (
              <field.Select label="Unit">
                {WINDOW_UNITS.map((each) => (
                  <option key={each} value={each}>
                    {each}
                  </option>
                ))}
              </field.Select>
            )}
          </form.AppField>
        </div>
        <p className="mb-3 text-xs text-muted">
          Now {span(before)}, at most {span(LONGEST_WINDOW)}. Its branches keep {bytes(history)} of history now, the
          WAL of their changes as storage counts it: the more is written in a window, the more it costs.
          {seconds !== null &&
            seconds < SHORTEST_WINDOW &&
            ` Storage keeps ${span(SHORTEST_WINDOW)} all the same: making a branch needs them.`}
        </p>
        {shorter && (
          <>
            <div className="mb-3">
              <Notice tone="warn">
                What is older than {span(Math.max(seconds, SHORTEST_WINDOW))} is dropped for good: nothing can be
                restored to it or branched from it any more, and a longer window later does not bring it back.
                Branches that were made from it stay.
              </Notice>
            </div>
            <form.AppField name="typed">
              {(field) => <field.Text label={`Type ${project.name} to confirm`} />}
            </form.AppField>
          </>
        )}
        <div className="flex flex-wrap justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button
            variant={shorter ? 'danger' : 'primary'}
            type="submit"
            busy={change.isPending}
            disabledReason={seconds === null ? 'Say how long first.' : blocked}
          >
            {shorter ? 'Shorten and drop history' : 'Change window'}
          </Button>
        </div>
      </form>
    </Dialog>
  )
}

/** How much data each branch may hold. */
export function QuotaForm({ project, branches, onClose }: Props) {
  const before = quotaOf(project)
  const form = useAppForm({
    defaultValues: { ...sizeFields(before), limited: before > 0 },
    // That nothing is typed yet is said at the button alone.
    validators: {
      onChange: ({ value }) =>
        wrong({ amount: value.limited && value.amount !== '' ? errorOf(sizeBytes(value.amount, value.unit)) : null }),
    },
    onSubmit: () => {
      if (limit !== null && limit !== before) change.mutate(limit)
    },
  })
  const { limited, amount, unit } = useStore(form.store, (state) => state.values)
  const read = sizeBytes(amount, unit)
  const limit = !limited ? 0 : 'bytes' in read ? read.bytes : null
  const over = limit === null || limit === 0 ? [] : branches.filter((branch) => (branch.logical_size ?? 0) >= limit)
  const largest = branches.reduce<Branch | null>(
    (found, branch) => ((branch.logical_size ?? 0) > (found?.logical_size ?? 0) ? branch : found),
    null,
  )
  const change = useAction((quotaBytes: number) => updateProject(project.id, { quotaBytes }), {
    done: limit === 0 ? 'The quota is being lifted' : 'The quota is being changed',
    invalidate: [projectKeys.one(project.id)],
    onDone: onClose,
  })
  return (
    <Dialog
      onClose={onClose}
      title="Storage quota"
      description={`How much data each branch of ${project.name} may hold, its indexes and system tables included.`}
    >
      <form onSubmit={submits(form)}>
        <form.AppField name="limited">
          {(field) => <field.Check label="Limit the data of each branch" />}
        </form.AppField>
        {limited && (
          <div className="mt-2 grid grid-cols-[minmax(0,1fr)_8rem] gap-3">
            <form.AppField name="amount">
              {(field) => <field.Text label="Quota of each branch" inputMode="decimal" required />}
            </form.AppField>
            <form.AppField name="unit">
              {(field) => (
                <field.Select label="Unit">
                  {SIZE_UNITS.map((each) => (
                    <option key={each} value={each}>
                      {each}
                    </option>
                  ))}
                </field.Select>
              )}
            </form.AppField>
          </div>
        )}
        <div className="my-3 space-y-1 text-xs text-muted">
          {largest && (
            <p>
              The largest branch is {largest.name}, with {bytes(largest.logical_size)}.
            </p>
          )}
          <p>
            A branch that reaches it takes no more data: what would make a table grow fails with “could not extend
            file: No space left on device” (SQLSTATE 53100). Reading, changing in place, DELETE, TRUNCATE and DROP go
            on. Running computes have a new quota at once.
          </p>
        </div>
        {over.length > 0 && (
          <div className="mb-3">
            <Notice tone="warn">
              {over.map((branch) => `${branch.name} (${bytes(branch.logical_size)})`).join(', ')} will take no more
              data.
            </Notice>
          </div>
        )}
        <LimitButtons what="quota" limit={limit} before={before} busy={change.isPending} onCancel={onClose} />
      </form>
    </Dialog>
  )
}
