import { useStore } from '@tanstack/react-form'
import { useState } from 'react'

import { longest } from '~/api/bounds'
import { zSnapshotRestoreRequest } from '~/api/generated/zod/zod.gen'
import type { Branch, Operation, Snapshot } from '~/api/types'
import { restoreRefusal } from '~/features/branches/can'
import { OperationSteps } from '~/features/operations/OperationSteps'
import { submits, useAppForm } from '~/shared/form'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'
import { Notice } from '~/ui/Notice'

import { type RestoreInput, restoreSnapshot } from './queries'

type Props = { projectId: string; snapshot: Snapshot; branches: Branch[]; onClose: () => void }

const WHAT = ['Make the snapshot’s state a branch', 'Exchange it, and start computes on it']

export function SnapshotRestoreForm(props: Props) {
  const [begun, setBegun] = useState<{ operations: Operation[]; name: string } | null>(null)
  const { projectId, snapshot, onClose } = props
  return (
    <Dialog
      onClose={onClose}
      title={`Restore ${snapshot.name}`}
      description="The snapshot stays, whichever you choose."
    >
      {begun ? (
        <>
          <OperationSteps
            projectId={projectId}
            steps={begun.operations.map((operation, index) => ({
              operation,
              what: WHAT[index] ?? operation.action,
            }))}
            done={`${begun.name} has the snapshot’s state.`}
          />
          <div className="mt-4 flex justify-end">
            <Button variant="primary" onClick={onClose}>
              Close
            </Button>
          </div>
        </>
      ) : (
        <RestoreFields {...props} onBegun={setBegun} />
      )}
    </Dialog>
  )
}

type Begun = { operations: Operation[]; name: string }

function RestoreFields({ projectId, snapshot, branches, onBegun }: Props & { onBegun: (begun: Begun) => void }) {
  const source = branches.find((branch) => branch.id === snapshot.source_branch_id)
  const restore = useAction((input: RestoreInput) => restoreSnapshot(projectId, snapshot.id, input), {
    done: `${snapshot.name} is being restored`,
    invalidate: [projectKeys.one(projectId)],
    onDone: ({ operations, branch }) => {
      onBegun({ operations, name: branch.name })
    },
  })
  const form = useAppForm({
    defaultValues: { how: 'beside', targetId: source?.id ?? '', name: '', typed: '' },
    onSubmit: ({ value }) => {
      if (blocked !== null) return
      const targetId = value.targetId || null
      restore.mutate({ targetId, inPlace: value.how === 'place', name: value.name.trim() })
    },
  })
  const { how, targetId, name, typed } = useStore(form.store, (state) => state.values)
  const target = branches.find((branch) => branch.id === targetId)
  const inPlace = how === 'place'
  const taken = branches.some((branch) => branch.name === name.trim())
  const blocked = inPlace
    ? !target
      ? 'Choose the branch that is to have the state.'
      : (restoreRefusal(target) ?? (typed === target.name ? null : `Type ${target.name} to confirm.`))
    : taken
      ? 'Another branch has this name.'
      : null
  return (
    <form onSubmit={submits(form)}>
      <form.AppField name="how">
        {(field) => (
          <field.Select label="As">
            <option value="beside">A new branch, to look at</option>
            <option value="place">What a branch is, from now on</option>
          </field.Select>
        )}
      </form.AppField>
      <form.AppField name="targetId">
        {(field) => (
          <field.Select
            label={inPlace ? 'The branch' : 'It may replace later'}
            hint={inPlace ? 'Its id, its addresses and its passwords stay.' : undefined}
          >
            <option value="">{inPlace ? 'Choose a branch' : 'No branch'}</option>
            {branches.map((branch) => (
              <option key={branch.id} value={branch.id}>
                {branch.name}
              </option>
            ))}
          </field.Select>
        )}
      </form.AppField>
      {inPlace ? (
        <>
          <div className="mb-3">
            <Notice tone="warn">
              Connections to {target?.name ?? 'the branch'} end once. What it is now stays as a branch of its own,
              named after it.
            </Notice>
          </div>
          <form.AppField name="typed">
            {(field) => <field.Text label={`Type ${target?.name ?? 'its name'} to confirm`} />}
          </form.AppField>
        </>
      ) : (
        <form.AppField name="name">
          {(field) => (
            <field.Text
              label="Name of the new branch"
              maxLength={longest(zSnapshotRestoreRequest.shape.name)}
              hint="A name is made for it, if it is left empty."
            />
          )}
        </form.AppField>
      )}
      <Button variant="primary" type="submit" busy={restore.isPending} disabledReason={blocked}>
        {inPlace ? 'Restore in place' : 'Make branch'}
      </Button>
    </form>
  )
}
