import { useQuery, useSuspenseQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams } from '@tanstack/react-router'
import { useState } from 'react'

import { branchesQuery } from '~/api/queries/branches'
import { endpointsQuery } from '~/api/queries/endpoints'
import { deleteProject, operationsQuery, projectKeys, projectQuery } from '~/api/queries/projects'
import type { Branch } from '~/api/types'
import { BranchTree } from '~/components/BranchTree'
import { ConnectionString } from '~/components/ConnectionString'
import { PageHeader } from '~/components/PageHeader'
import { StateBadge } from '~/components/StateBadge'
import { stateText } from '~/components/states'
import { useAction } from '~/components/use-action'
import { useNow } from '~/components/use-now'
import { BranchCreateForm } from '~/forms/branch-create'
import { ago, seconds } from '~/lib/format'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { Dialog } from '~/ui/Dialog'
import { TextField } from '~/ui/Field'
import { Loading } from '~/ui/Notice'
import { Table } from '~/ui/Table'

function Operations({ projectId }: { projectId: string }) {
  const { data } = useQuery(operationsQuery(projectId))
  const now = useNow()
  if (!data) return <Loading what="operations" />
  return (
    <Table
      caption="Operations"
      cards
      rows={data.operations}
      rowKey={(row) => row.id}
      empty="Nothing has been done here yet."
      columns={[
        { key: 'action', header: 'Operation', cell: (row) => <>{stateText(row.action)}{(row.error ?? row.warning) && <p className="line-clamp-3 text-xs text-muted" title={row.error ?? row.warning ?? undefined}>{row.error ?? row.warning}</p>}</> },
        { key: 'status', header: 'Status', cell: (row) => <StateBadge state={row.status} reason={row.error ?? row.warning} /> },
        { key: 'what', header: 'On', cell: (row) => <code className="text-xs whitespace-nowrap">{row.endpoint_id ?? row.branch_id ?? row.project_id}</code> },
        { key: 'when', header: 'Asked for', cell: (row) => ago(row.created_at, now) },
        { key: 'took', header: 'Took', numeric: true, cell: (row) => seconds(row.total_duration_ms / 1000) },
      ]}
    />
  )
}

function DeleteProject({ id, name }: { id: string; name: string }) {
  const [open, setOpen] = useState(false)
  const [typed, setTyped] = useState('')
  const navigate = useNavigate()
  const remove = useAction(() => deleteProject(id), {
    done: `Project ${name} is being deleted`,
    invalidate: [projectKeys.all],
    onDone: () => void navigate({ to: '/projects' }),
  })
  return (
    <>
      <Button variant="danger" onClick={() => { setOpen(true) }}>
        Delete project
      </Button>
      <Dialog open={open} onOpenChange={setOpen} title={`Delete ${name}?`} description="Every branch, compute and byte of it goes. This cannot be undone.">
        <TextField label={`Type ${name} to confirm`} value={typed} onChange={(event) => { setTyped(event.target.value) }} />
        <Button variant="danger" disabled={typed !== name} busy={remove.isPending} onClick={() => { remove.mutate(undefined) }}>
          Delete for good
        </Button>
      </Dialog>
    </>
  )
}

export function ProjectPage() {
  const { projectId } = useParams({ from: '/app/projects/$projectId' })
  const { project } = useSuspenseQuery(projectQuery(projectId)).data
  const { branches } = useSuspenseQuery(branchesQuery(projectId)).data
  const { endpoints } = useSuspenseQuery(endpointsQuery(projectId)).data
  const [parent, setParent] = useState<Branch | null>(null)
  const main = branches.find((branch) => branch.default) ?? branches[0]
  return (
    <>
      <PageHeader
        above={<Link to="/projects" className="underline">Projects</Link>}
        title={project.name}
        note={<>Postgres {project.pg_version} · <code>{project.id}</code></>}
        actions={<DeleteProject id={project.id} name={project.name} />}
      />
      <div className="grid gap-4">
        {main && <ConnectionString projectId={projectId} branch={main} />}
        <Card title="Branches" note="A branch shares its past with its parent; writes on either side stay there.">
          <BranchTree projectId={projectId} branches={branches} endpoints={endpoints} onBranch={setParent} />
        </Card>
        <Card title="Operations" note="The last 20, newest first.">
          <Operations projectId={projectId} />
        </Card>
      </div>
      {parent && <BranchCreateForm projectId={projectId} parent={parent} onClose={() => { setParent(null) }} />}
    </>
  )
}
