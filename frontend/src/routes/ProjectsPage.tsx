import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useDeferredValue, useState } from 'react'

import { longest } from '~/api/bounds'
import { errorText } from '~/api/errors'
import { zProjectFields } from '~/api/generated/zod/zod.gen'
import { createProject, NEWEST, projectSearchQuery } from '~/features/projects/queries'
import { ago, count } from '~/lib/format'
import { submits, useAppForm } from '~/shared/form'
import { PageHeader } from '~/shared/PageHeader'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { useNow } from '~/shared/use-now'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { Dialog } from '~/ui/Dialog'
import { TextField } from '~/ui/Field'
import { Loading, Notice } from '~/ui/Notice'
import { Table } from '~/ui/Table'

function CreateProject({ open, onOpenChange }: { open: boolean; onOpenChange: (open: boolean) => void }) {
  const navigate = useNavigate()
  const create = useAction(createProject, {
    done: 'Project created; its compute is starting',
    invalidate: [projectKeys.all],
    onDone: ({ project }) => {
      onOpenChange(false)
      void navigate({ to: '/projects/$projectId', params: { projectId: project.id } })
    },
  })
  const form = useAppForm({ defaultValues: { name: '' }, onSubmit: ({ value }) => { create.mutate(value.name.trim()) } })
  return (
    <Dialog open={open} onOpenChange={onOpenChange} title="New project" description="A project gets a main branch and a read-write compute.">
      <form onSubmit={submits(form)}>
        <form.AppField name="name">{(field) => <field.Text label="Name" required maxLength={longest(zProjectFields.shape.name)} />}</form.AppField>
        <Button variant="primary" type="submit" busy={create.isPending}>
          Create project
        </Button>
      </form>
    </Dialog>
  )
}

export function ProjectsPage() {
  const [search, setSearch] = useState('')
  const { data, error } = useQuery(projectSearchQuery(useDeferredValue(search.trim())))
  const [creating, setCreating] = useState(false)
  const now = useNow()
  return (
    <>
      <PageHeader title="Projects" actions={<Button variant="primary" onClick={() => { setCreating(true) }}>New project</Button>} />
      <CreateProject open={creating} onOpenChange={setCreating} />
      <Card>
        <div className="max-w-sm">
          <TextField label="Search projects" type="search" value={search} onChange={(event) => { setSearch(event.target.value) }} />
        </div>
        {error && <Notice tone="bad">{errorText(error)}</Notice>}
        {data && data.projects.length === NEWEST && <p className="mb-2 text-xs text-muted">The newest {count(NEWEST)} that match are shown.</p>}
        <Table
          caption="Projects"
          cards
          partial={data?.projects.length === NEWEST}
          rows={data?.projects ?? []}
          rowKey={(row) => row.id}
          empty={!data ? <Loading what="projects" /> : search.trim() ? 'No project has that name.' : 'No projects yet. Create one to get a Postgres database.'}
          columns={[
            {
              key: 'name',
              header: 'Name',
              sort: (row) => row.name,
              cell: (row) => (
                <Link to="/projects/$projectId" params={{ projectId: row.id }} className="font-medium text-accent underline">
                  {row.name}
                </Link>
              ),
            },
            { key: 'id', header: 'Id', cell: (row) => <code className="text-xs whitespace-nowrap">{row.id}</code> },
            { key: 'pg', header: 'Postgres', sort: (row) => row.pg_version, cell: (row) => row.pg_version },
            { key: 'region', header: 'Region', sort: (row) => row.region_id, cell: (row) => row.region_id },
            { key: 'created', header: 'Created', sort: (row) => Date.parse(row.created_at), cell: (row) => ago(row.created_at, now) },
          ]}
        />
      </Card>
    </>
  )
}
