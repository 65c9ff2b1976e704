import { useStore } from '@tanstack/react-form'

import { longest } from '~/api/bounds'
import { zSnapshotUpdate } from '~/api/generated/zod/zod.gen'
import type { Branch } from '~/api/types'
import { PointFields } from '~/features/branches/PointFields'
import type { Point } from '~/features/branches/queries'
import { usePoint } from '~/features/branches/use-point'
import { submits, useAppForm } from '~/shared/form'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'

import { createSnapshot, type SnapshotInput } from './queries'

type Props = { projectId: string; since: string; branches: Branch[]; onClose: () => void }

const HEAD: Point = { from: 'head', at: '' }

export function SnapshotCreateForm({ projectId, since, branches, onClose }: Props) {
  const create = useAction((input: SnapshotInput) => createSnapshot(projectId, input), {
    done: 'The snapshot is being taken',
    invalidate: [projectKeys.one(projectId)],
    onDone: onClose,
  })
  const first = branches.find((branch) => branch.default) ?? branches[0]
  const form = useAppForm({
    defaultValues: { branchId: first?.id ?? '', name: '', point: HEAD, expires: '' },
    onSubmit: ({ value }) => {
      if (chosen.blocked === null) create.mutate({ ...value, name: value.name.trim() })
    },
  })
  const { branchId, point } = useStore(form.store, (state) => state.values)
  const branch = branches.find((each) => each.id === branchId) ?? first
  const chosen = usePoint(projectId, branchId, point)
  return (
    <Dialog
      onClose={onClose}
      title="New snapshot"
      description="Nothing is copied. The state stays readable whatever becomes of the branch’s history."
    >
      <form onSubmit={submits(form)}>
        <form.AppField
          name="branchId"
          listeners={{
            onChange: () => {
              form.setFieldValue('point', HEAD)
            },
          }}
        >
          {(field) => (
            <field.Select label="Of branch">
              {branches.map((each) => (
                <option key={each.id} value={each.id} disabled={each.current_state !== 'ready'}>
                  {each.name}
                </option>
              ))}
            </field.Select>
          )}
        </form.AppField>
        <form.AppField name="name">
          {(field) => (
            <field.Text
              label="Name"
              maxLength={longest(zSnapshotUpdate.shape.name)}
              hint="The branch’s name and the moment, if it is left empty."
            />
          )}
        </form.AppField>
        {branch && (
          <PointFields
            label="State"
            head="Now"
            branch={branch}
            since={since}
            point={point}
            chosen={chosen}
            onPoint={(next) => {
              form.setFieldValue('point', next)
            }}
          />
        )}
        <form.AppField name="expires">
          {(field) => (
            <field.Text
              label={`Deleted at (${Intl.DateTimeFormat().resolvedOptions().timeZone})`}
              type="datetime-local"
              hint="Never, if it is left empty."
            />
          )}
        </form.AppField>
        <Button variant="primary" type="submit" busy={create.isPending} disabledReason={chosen.blocked}>
          Take snapshot
        </Button>
      </form>
    </Dialog>
  )
}
