import { type SyntheticEvent, useState } from 'react'

import { createBranch } from '~/api/queries/branches'
import { projectKeys } from '~/api/queries/projects'
import type { Branch } from '~/api/types'
import { useAction } from '~/components/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'
import { SelectField, TextField } from '~/ui/Field'

const LSN = /^[0-9a-fA-F]{1,8}\/[0-9a-fA-F]{1,8}$/

type Props = { projectId: string; parent: Branch; onClose: () => void }

export function BranchCreateForm({ projectId, parent, onClose }: Props) {
  const [name, setName] = useState('')
  const [from, setFrom] = useState<'head' | 'lsn' | 'timestamp'>('head')
  const [at, setAt] = useState('')
  const [withCompute, setWithCompute] = useState(true)
  const create = useAction((input: Parameters<typeof createBranch>[1]) => createBranch(projectId, input), {
    done: 'Branch created',
    invalidate: [projectKeys.one(projectId)],
    onDone: onClose,
  })
  const badLsn = from === 'lsn' && at !== '' && !LSN.test(at) ? 'Two hexadecimal numbers with a slash between, such as 0/16B3748.' : null

  function submit(event: SyntheticEvent) {
    event.preventDefault()
    if (!badLsn) create.mutate({ name: name.trim(), parentId: parent.id, from, at, withCompute })
  }

  return (
    <Dialog open onOpenChange={(open) => { if (!open) onClose() }} title={`Branch from ${parent.name}`} description="Nothing is copied: both share their past.">
      <form onSubmit={submit}>
        <TextField label="Name" required maxLength={64} value={name} onChange={(event) => { setName(event.target.value) }} />
        <SelectField label="Start from" value={from} onChange={(event) => { setFrom(event.target.value as typeof from); setAt('') }}>
          <option value="head">Now</option>
          <option value="timestamp">A point in time</option>
          <option value="lsn">A WAL position (LSN)</option>
        </SelectField>
        {from === 'lsn' && (
          <TextField label="LSN" required placeholder="0/16B3748" value={at} error={badLsn} onChange={(event) => { setAt(event.target.value) }} />
        )}
        {from === 'timestamp' && (
          <TextField label="Time (your time zone)" required type="datetime-local" step={1} value={at} onChange={(event) => { setAt(event.target.value) }} />
        )}
        <label className="mb-4 flex items-center gap-2 text-sm">
          <input type="checkbox" checked={withCompute} onChange={(event) => { setWithCompute(event.target.checked) }} />
          With a read-write compute
        </label>
        <Button variant="primary" type="submit" busy={create.isPending}>
          Create branch
        </Button>
      </form>
    </Dialog>
  )
}
