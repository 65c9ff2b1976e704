import { type SyntheticEvent, useState } from 'react'

import { longest } from '~/api/bounds'
import { zBranchRestoreRequest } from '~/api/generated/zod/zod.gen'
import type { Branch, Endpoint, Operation } from '~/api/types'
import { OperationSteps } from '~/features/operations/OperationSteps'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'
import { Checkbox, SelectField, TextField } from '~/ui/Field'

import { mustPreserve, preservedName, restoreSteps } from './can'
import { PointFields } from './PointFields'
import { type Point, restoreBranch, type RestoreInput } from './queries'
import { usePoint } from './use-point'

type Props = { projectId: string; since: string; branch: Branch; branches: Branch[]; endpoints: Endpoint[]; onClose: () => void }

const WHAT = ['Make the state asked for', 'Exchange it, and start computes on it', 'Delete what was there']
const PAST: Point = { from: 'timestamp', at: '' }

export function BranchRestoreForm(props: Props) {
  // The branch as it was when this was opened: after the exchange it is another one.
  const [branch] = useState(props.branch)
  const [operations, setOperations] = useState<Operation[] | null>(null)
  return (
    <Dialog
      open
      onOpenChange={(open) => { if (!open) props.onClose() }}
      title={operations ? `Restoring ${branch.name}` : `Restore ${branch.name}`}
      description={operations ? 'It goes on when this is closed; the operations of the project show it.' : 'The branch gets another state and keeps its name and addresses.'}
    >
      {operations ? (
        <>
          <OperationSteps
            projectId={props.projectId}
            steps={operations.map((operation, index) => ({ operation, what: WHAT[index] ?? operation.action }))}
            done={`${branch.name} has the state asked for.`}
          />
          <div className="mt-4 flex justify-end">
            <Button variant="primary" onClick={props.onClose}>Close</Button>
          </div>
        </>
      ) : (
        <RestoreFields {...props} branch={branch} onBegun={setOperations} />
      )}
    </Dialog>
  )
}

function RestoreFields({ projectId, since, branch, branches, endpoints, onClose, onBegun }: Props & { onBegun: (operations: Operation[]) => void }) {
  const [sourceId, setSourceId] = useState(branch.id)
  const [point, setPoint] = useState(PAST)
  const [keep, setKeep] = useState(true)
  const [name, setName] = useState(() => preservedName(branch, branches, new Date()))
  const [typed, setTyped] = useState('')
  const source = branches.find((each) => each.id === sourceId) ?? branch
  const chosen = usePoint(projectId, source.id, point)
  const needed = mustPreserve(branch, source, branches)
  const kept = keep || needed !== null
  const preserveUnder = kept ? name.trim() : null
  const taken = kept && branches.some((each) => each.name === name.trim()) ? 'Another branch has this name.' : null
  const blocked = chosen.blocked ?? taken ?? (kept && preserveUnder === '' ? 'Name the branch that keeps what is there now.' : !kept && typed !== branch.name ? `Type ${branch.name} to confirm.` : null)
  const restore = useAction((input: RestoreInput) => restoreBranch(projectId, branch.id, input), {
    done: `${branch.name} is being restored`,
    invalidate: [projectKeys.one(projectId)],
    onDone: (answer) => { onBegun(answer.operations) },
  })

  function submit(event: SyntheticEvent) {
    event.preventDefault()
    if (blocked === null) restore.mutate({ sourceId: source.id, point, preserveUnder })
  }

  return (
    <form onSubmit={submit}>
      {branches.length > 1 && (
        <SelectField label="To a state of" value={source.id} onChange={(event) => { setSourceId(event.target.value); setPoint(event.target.value === branch.id ? PAST : { from: 'head', at: '' }) }}>
          <option value={branch.id}>{branch.name}: its own past</option>
          {branches.filter((each) => each.id !== branch.id).map((each) => (
            <option key={each.id} value={each.id} disabled={each.current_state !== 'ready'}>{each.name}</option>
          ))}
        </SelectField>
      )}
      <PointFields label="Which state" head={source.id === branch.id ? null : 'Its newest'} branch={source} since={since} point={point} chosen={chosen} onPoint={setPoint} />
      <fieldset className="mb-3 border-t border-line pt-3">
        <legend className="sr-only">What {branch.name} is now</legend>
        {needed === null ? <Checkbox label={`Keep what ${branch.name} is now as a branch`} checked={keep} onChange={setKeep} /> : null}
        {kept ? (
          <TextField label={`Keep what ${branch.name} is now as`} required maxLength={longest(zBranchRestoreRequest.shape.preserve_under_name)} value={name} error={taken} hint={needed ?? undefined} onChange={(event) => { setName(event.target.value) }} />
        ) : (
          <TextField label={`Type ${branch.name} to confirm that what it is now goes for good`} value={typed} onChange={(event) => { setTyped(event.target.value) }} />
        )}
      </fieldset>
      <div className="mb-4 rounded-md bg-raised px-3 py-2 text-sm">
        <p className="font-medium">What will happen</p>
        <ol className="list-decimal space-y-0.5 pl-5">
          {restoreSteps({ branch, source, branches, endpoints, preserveUnder }).map((step) => <li key={step}>{step}</li>)}
        </ol>
      </div>
      {/* The form can be longer than the screen: what ends it stays in sight. */}
      <div className="sticky -bottom-5 -mx-5 -mb-5 flex flex-wrap justify-end gap-2 border-t border-line bg-panel px-5 py-3">
        <Button onClick={onClose}>Cancel</Button>
        <Button variant={kept ? 'primary' : 'danger'} type="submit" busy={restore.isPending} disabledReason={blocked}>
          Restore {branch.name}
        </Button>
      </div>
    </form>
  )
}
