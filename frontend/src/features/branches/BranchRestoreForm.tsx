import { useStore } from '@tanstack/react-form'
import { useState } from 'react'

import { longest } from '~/api/bounds'
import { zBranchRestoreRequest } from '~/api/generated/zod/zod.gen'
import type { Branch, Endpoint, Operation } from '~/api/types'
import { OperationSteps } from '~/features/operations/OperationSteps'
import { submits, useAppForm, wrong } from '~/shared/form'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'

import { mustPreserve, preservedName, restoreSteps } from './can'
import { PointFields } from './PointFields'
import { type Point, restoreBranch, type RestoreInput } from './queries'
import { usePoint } from './use-point'

type Props = {
  projectId: string
  since: string
  branch: Branch
  branches: Branch[]
  endpoints: Endpoint[]
  onClose: () => void
}

const WHAT = ['Make the state asked for', 'Exchange it, and start computes on it', 'Delete what was there']
const PAST: Point = { from: 'timestamp', at: '' }

export function BranchRestoreForm(props: Props) {
  // The branch as it was when this was opened: after the exchange it is another one.
  const [branch] = useState(props.branch)
  const [operations, setOperations] = useState<Operation[] | null>(null)
  return (
    <Dialog
      onClose={props.onClose}
      title={operations ? `Restoring ${branch.name}` : `Restore ${branch.name}`}
      description={
        operations
          ? 'It goes on when this is closed; the operations of the project show it.'
          : 'The branch gets another state and keeps its name and addresses.'
      }
    >
      {operations ? (
        <>
          <OperationSteps
            projectId={props.projectId}
            steps={operations.map((operation, index) => ({ operation, what: WHAT[index] ?? operation.action }))}
            done={`${branch.name} has the state asked for.`}
          />
          <div className="mt-4 flex justify-end">
            <Button variant="primary" onClick={props.onClose}>
              Close
            </Button>
          </div>
        </>
      ) : (
        <RestoreFields {...props} branch={branch} onBegun={setOperations} />
      )}
    </Dialog>
  )
}

function WhatWillHappen({ steps }: { steps: string[] }) {
  return (
    <div className="mb-4 rounded-md bg-raised px-3 py-2 text-sm">
      <p className="font-medium">What will happen</p>
      <ol className="list-decimal space-y-0.5 pl-5">
        {steps.map((step) => (
          <li key={step}>{step}</li>
        ))}
      </ol>
    </div>
  )
}

function RestoreFields({
  projectId,
  since,
  branch,
  branches,
  endpoints,
  onClose,
  onBegun,
}: Props & { onBegun: (operations: Operation[]) => void }) {
  const [first] = useState(() => preservedName(branch, branches, new Date()))
  const sourceOf = (id: string) => branches.find((each) => each.id === id) ?? branch
  const takenBy = (name: string) =>
    branches.some((each) => each.name === name.trim()) ? 'Another branch has this name.' : null
  const form = useAppForm({
    defaultValues: { sourceId: branch.id, point: PAST, keep: true, name: first, typed: '' },
    validators: {
      onChange: ({ value }) =>
        wrong({
          name:
            value.keep || mustPreserve(branch, sourceOf(value.sourceId), branches) !== null
              ? takenBy(value.name)
              : null,
        }),
    },
    onSubmit: () => {
      if (blocked === null) restore.mutate({ sourceId: source.id, point, preserveUnder })
    },
  })
  const { sourceId, point, keep, name, typed } = useStore(form.store, (state) => state.values)
  const source = sourceOf(sourceId)
  const chosen = usePoint(projectId, source.id, point)
  const needed = mustPreserve(branch, source, branches)
  const kept = keep || needed !== null
  const preserveUnder = kept ? name.trim() : null
  const taken = kept ? takenBy(name) : null
  const blocked =
    chosen.blocked ??
    taken ??
    (kept && preserveUnder === '' ? 'Name the branch that keeps what is there now.' : null) ??
    (!kept && typed !== branch.name ? `Type ${branch.name} to confirm.` : null)
  const restore = useAction((input: RestoreInput) => restoreBranch(projectId, branch.id, input), {
    done: `${branch.name} is being restored`,
    invalidate: [projectKeys.one(projectId)],
    onDone: (answer) => {
      onBegun(answer.operations)
    },
  })

  return (
    <form onSubmit={submits(form)}>
      {branches.length > 1 && (
        <form.AppField
          name="sourceId"
          listeners={{
            onChange: ({ value }) => {
              form.setFieldValue('point', value === branch.id ? PAST : { from: 'head', at: '' })
            },
          }}
        >
          {(field) => (
            <field.Select label="To a state of">
              <option value={branch.id}>{branch.name}: its own past</option>
              {branches
                .filter((each) => each.id !== branch.id)
                .map((each) => (
                  <option key={each.id} value={each.id} disabled={each.current_state !== 'ready'}>
                    {each.name}
                  </option>
                ))}
            </field.Select>
          )}
        </form.AppField>
      )}
      <PointFields
        label="Which state"
        head={source.id === branch.id ? null : 'Its newest'}
        branch={source}
        since={since}
        point={point}
        chosen={chosen}
        onPoint={(next) => {
          form.setFieldValue('point', next)
        }}
      />
      <fieldset className="mb-3 border-t border-line pt-3">
        <legend className="sr-only">What {branch.name} is now</legend>
        {needed === null && (
          <form.AppField name="keep">
            {(field) => <field.Check label={`Keep what ${branch.name} is now as a branch`} />}
          </form.AppField>
        )}
        {kept ? (
          <form.AppField name="name">
            {(field) => (
              <field.Text
                label={`Keep what ${branch.name} is now as`}
                required
                maxLength={longest(zBranchRestoreRequest.shape.preserve_under_name)}
                hint={needed ?? undefined}
              />
            )}
          </form.AppField>
        ) : (
          <form.AppField name="typed">
            {(field) => <field.Text label={`Type ${branch.name} to confirm that what it is now goes for good`} />}
          </form.AppField>
        )}
      </fieldset>
      <WhatWillHappen steps={restoreSteps({ branch, source, branches, endpoints, preserveUnder })} />
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
