import { type SyntheticEvent, useState } from 'react'

import type { Branch, Project } from '~/api/types'
import { quotaOf } from '~/features/branches/can'
import { bytes, span } from '~/lib/format'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'
import { Checkbox, SelectField, TextField } from '~/ui/Field'
import { Notice } from '~/ui/Notice'

import { LONGEST_WINDOW, SHORTEST_WINDOW, SIZE_UNITS, sizeBytes, sizeFields, type SizeUnit, WINDOW_UNITS, windowFields, windowSeconds, type WindowUnit } from './amounts'
import { updateProject } from './queries'

type Props = { project: Project; branches: Branch[]; onClose: () => void }

/** How far back branches can be restored. A shorter window is confirmed by the project's name, as what it gives up is gone. */
export function HistoryWindowForm({ project, branches, onClose }: Props) {
  const before = project.history_retention_seconds
  const [{ amount, unit }, setFields] = useState(() => windowFields(before))
  const [typed, setTyped] = useState('')
  const read = windowSeconds(amount, unit)
  const seconds = 'seconds' in read ? read.seconds : null
  const shorter = seconds !== null && seconds < before
  const history = branches.reduce((sum, branch) => sum + (branch.history_size ?? 0), 0)
  const change = useAction((historySeconds: number) => updateProject(project.id, { historySeconds }), {
    done: 'The history window is being changed',
    invalidate: [projectKeys.one(project.id)],
    onDone: onClose,
  })
  const blocked = seconds === before ? 'This is the window it has.' : shorter && typed !== project.name ? `Type ${project.name} to confirm.` : null
  function submit(event: SyntheticEvent) {
    event.preventDefault()
    if (seconds !== null && blocked === null) change.mutate(seconds)
  }
  return (
    <Dialog open onOpenChange={(open) => { if (!open) onClose() }} title="History window" description={`How far back every branch of ${project.name} can be restored or branched from.`}>
      <form onSubmit={submit}>
        <div className="grid grid-cols-[minmax(0,1fr)_8rem] gap-3">
          <TextField label="Keep history for" inputMode="decimal" required value={amount} error={'error' in read ? read.error : null} onChange={(event) => { setFields({ amount: event.target.value, unit }) }} />
          <SelectField label="Unit" value={unit} onChange={(event) => { setFields({ amount, unit: event.target.value as WindowUnit }) }}>
            {WINDOW_UNITS.map((each) => <option key={each} value={each}>{each}</option>)}
          </SelectField>
        </div>
        <p className="mb-3 text-xs text-muted">
          Now {span(before)}, at most {span(LONGEST_WINDOW)}. Its branches keep {bytes(history)} of history now, the WAL of their changes as storage counts it: the more is written in a window, the more it costs.
          {seconds !== null && seconds < SHORTEST_WINDOW && ` Storage keeps ${span(SHORTEST_WINDOW)} all the same: making a branch needs them.`}
        </p>
        {shorter && (
          <>
            <div className="mb-3">
              <Notice tone="warn">
                What is older than {span(Math.max(seconds, SHORTEST_WINDOW))} is dropped for good: nothing can be restored to it or branched from it any more, and a longer window later does not bring it back. Branches that were made from it stay.
              </Notice>
            </div>
            <TextField label={`Type ${project.name} to confirm`} value={typed} onChange={(event) => { setTyped(event.target.value) }} />
          </>
        )}
        <div className="flex flex-wrap justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button variant={shorter ? 'danger' : 'primary'} type="submit" busy={change.isPending} disabledReason={seconds === null ? 'Say how long first.' : blocked}>
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
  const [limited, setLimited] = useState(before > 0)
  const [{ amount, unit }, setFields] = useState(() => sizeFields(before))
  const read = sizeBytes(amount, unit)
  const limit = !limited ? 0 : 'bytes' in read ? read.bytes : null
  const over = limit === null || limit === 0 ? [] : branches.filter((branch) => (branch.logical_size ?? 0) >= limit)
  const largest = branches.reduce<Branch | null>((found, branch) => ((branch.logical_size ?? 0) > (found?.logical_size ?? 0) ? branch : found), null)
  const change = useAction((quotaBytes: number) => updateProject(project.id, { quotaBytes }), {
    done: limit === 0 ? 'The quota is being lifted' : 'The quota is being changed',
    invalidate: [projectKeys.one(project.id)],
    onDone: onClose,
  })
  function submit(event: SyntheticEvent) {
    event.preventDefault()
    if (limit !== null && limit !== before) change.mutate(limit)
  }
  return (
    <Dialog open onOpenChange={(open) => { if (!open) onClose() }} title="Storage quota" description={`How much data each branch of ${project.name} may hold, its indexes and system tables included.`}>
      <form onSubmit={submit}>
        <Checkbox label="Limit the data of each branch" checked={limited} onChange={setLimited} />
        {limited && (
          <div className="mt-2 grid grid-cols-[minmax(0,1fr)_8rem] gap-3">
            <TextField label="Quota of each branch" inputMode="decimal" required value={amount} error={amount !== '' && 'error' in read ? read.error : null} onChange={(event) => { setFields({ amount: event.target.value, unit }) }} />
            <SelectField label="Unit" value={unit} onChange={(event) => { setFields({ amount, unit: event.target.value as SizeUnit }) }}>
              {SIZE_UNITS.map((each) => <option key={each} value={each}>{each}</option>)}
            </SelectField>
          </div>
        )}
        <div className="my-3 space-y-1 text-xs text-muted">
          {largest && <p>The largest branch is {largest.name}, with {bytes(largest.logical_size)}.</p>}
          <p>
            A branch that reaches it takes no more data: what would make a table grow fails with “could not extend file: No space left on device” (SQLSTATE 53100). Reading, changing in place, DELETE, TRUNCATE and DROP go on. Running computes have a new quota at once.
          </p>
        </div>
        {over.length > 0 && (
          <div className="mb-3">
            <Notice tone="warn">{over.map((branch) => `${branch.name} (${bytes(branch.logical_size)})`).join(', ')} will take no more data.</Notice>
          </div>
        )}
        <div className="flex flex-wrap justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button variant="primary" type="submit" busy={change.isPending} disabledReason={limit === null ? 'Say how much first.' : limit === before ? 'This is the quota it has.' : null}>
            {limit === 0 ? 'Lift quota' : 'Set quota'}
          </Button>
        </div>
      </form>
    </Dialog>
  )
}
