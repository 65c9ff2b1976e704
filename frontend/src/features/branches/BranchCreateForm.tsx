import { useStore } from '@tanstack/react-form'

import { longest } from '~/api/bounds'
import { zBranchFields } from '~/api/generated/zod/zod.gen'
import type { Branch } from '~/api/types'
import { submits, useAppForm } from '~/shared/form'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'

import { PointFields } from './PointFields'
import { type BranchInput, createBranch, type Point } from './queries'
import { usePoint } from './use-point'

type Props = { projectId: string; since: string; parent: Branch; branches: Branch[]; onClose: () => void }

const HEAD: Point = { from: 'head', at: '' }

export function BranchCreateForm({ projectId, since, parent: first, branches, onClose }: Props) {
  const create = useAction((input: BranchInput) => createBranch(projectId, input), {
    done: 'Branch created',
    invalidate: [projectKeys.one(projectId)],
    onDone: onClose,
  })
  const form = useAppForm({
    defaultValues: { name: '', parentId: first.id, point: HEAD, withCompute: true },
    onSubmit: ({ value: { name, ...value } }) => {
      if (chosen.blocked === null) create.mutate({ ...value, name: name.trim() })
    },
  })
  const { parentId, point } = useStore(form.store, (state) => state.values)
  const parent = branches.find((branch) => branch.id === parentId) ?? first
  const chosen = usePoint(projectId, parent.id, point)
  return (
    <Dialog
      onClose={onClose}
      title={`Branch from ${parent.name}`}
      description="Nothing is copied: both share their past."
    >
      <form onSubmit={submits(form)}>
        <form.AppField name="name">
          {(field) => <field.Text label="Name" required maxLength={longest(zBranchFields.shape.name)} />}
        </form.AppField>
        {branches.length > 1 && (
          <form.AppField
            name="parentId"
            listeners={{
              onChange: () => {
                form.setFieldValue('point', HEAD)
              },
            }}
          >
            {(field) => (
              <field.Select label="Of branch">
                {branches.map((branch) => (
                  <option key={branch.id} value={branch.id} disabled={branch.current_state !== 'ready'}>
                    {branch.name}
                  </option>
                ))}
              </field.Select>
            )}
          </form.AppField>
        )}
        <PointFields
          label="Start from"
          head="Now"
          branch={parent}
          since={since}
          point={point}
          chosen={chosen}
          onPoint={(next) => {
            form.setFieldValue('point', next)
          }}
        />
        <div className="mb-4">
          <form.AppField name="withCompute">
            {(field) => <field.Check label="With a read-write compute" />}
          </form.AppField>
        </div>
        <Button variant="primary" type="submit" busy={create.isPending} disabledReason={chosen.blocked}>
          Create branch
        </Button>
      </form>
    </Dialog>
  )
}
