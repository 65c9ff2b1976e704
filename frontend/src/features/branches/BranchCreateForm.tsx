import { type SyntheticEvent, useState } from 'react'

import { longest } from '~/api/bounds'
import { zBranchFields } from '~/api/generated/zod/zod.gen'
import type { Branch } from '~/api/types'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'
import { Checkbox, SelectField, TextField } from '~/ui/Field'

import { PointFields } from './PointFields'
import { type BranchInput, createBranch, type Point } from './queries'
import { usePoint } from './use-point'

type Props = { projectId: string; since: string; parent: Branch; branches: Branch[]; onClose: () => void }

export function BranchCreateForm({ projectId, since, parent: first, branches, onClose }: Props) {
  const [name, setName] = useState('')
  const [parentId, setParentId] = useState(first.id)
  const [point, setPoint] = useState<Point>({ from: 'head', at: '' })
  const [withCompute, setWithCompute] = useState(true)
  const parent = branches.find((branch) => branch.id === parentId) ?? first
  const chosen = usePoint(projectId, parent.id, point)
  const create = useAction((input: BranchInput) => createBranch(projectId, input), {
    done: 'Branch created',
    invalidate: [projectKeys.one(projectId)],
    onDone: onClose,
  })

  function submit(event: SyntheticEvent) {
    event.preventDefault()
    if (chosen.blocked === null) create.mutate({ name: name.trim(), parentId: parent.id, point, withCompute })
  }

  return (
    <Dialog open onOpenChange={(open) => { if (!open) onClose() }} title={`Branch from ${parent.name}`} description="Nothing is copied: both share their past.">
      <form onSubmit={submit}>
        <TextField label="Name" required maxLength={longest(zBranchFields.shape.name)} value={name} onChange={(event) => { setName(event.target.value) }} />
        {branches.length > 1 && (
          <SelectField label="Of branch" value={parent.id} onChange={(event) => { setParentId(event.target.value); setPoint({ from: 'head', at: '' }) }}>
            {branches.map((branch) => (
              <option key={branch.id} value={branch.id} disabled={branch.current_state !== 'ready'}>{branch.name}</option>
            ))}
          </SelectField>
        )}
        <PointFields label="Start from" head="Now" branch={parent} since={since} point={point} chosen={chosen} onPoint={setPoint} />
        <div className="mb-4">
          <Checkbox label="With a read-write compute" checked={withCompute} onChange={setWithCompute} />
        </div>
        <Button variant="primary" type="submit" busy={create.isPending} disabledReason={chosen.blocked}>
          Create branch
        </Button>
      </form>
    </Dialog>
  )
}
