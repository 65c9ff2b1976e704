import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useDeferredValue, useState } from 'react'

import { errorText } from '~/api/errors'
import { NEWEST, projectSearchQuery } from '~/features/projects/queries'
import { ago, count } from '~/lib/format'
import { lazyDialog } from '~/shared/lazy-dialog'
import { PageHeader } from '~/shared/PageHeader'
import { useNow } from '~/shared/use-now'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { TextField } from '~/ui/Field'
import { Loading, Notice } from '~/ui/Notice'
import { Table } from '~/ui/Table'

const ProjectAcceptForm = lazyDialog(() => import('~/features/projects/ProjectAcceptForm'), 'ProjectAcceptForm')
const ProjectCreateForm = lazyDialog(() => import('~/features/projects/ProjectCreateForm'), 'ProjectCreateForm')

export function ProjectsPage() {
  const [search, setSearch] = useState('')
  const { data, error } = useQuery(projectSearchQuery(useDeferredValue(search.trim())))
  const [creating, setCreating] = useState(false)
  const [accepting, setAccepting] = useState(false)
  const now = useNow()
  return (
    <>
      <PageHeader
        title="Projects"
        actions={
          <>
            <Button
              needs="works-in-all"
              onClick={() => {
                setAccepting(true)
              }}
            >
              Accept a project
            </Button>
            <Button
              needs="works-in-all"
              variant="primary"
              onClick={() => {
                setCreating(true)
              }}
            >
              New project
            </Button>
          </>
        }
      />
      {accepting && (
        <ProjectAcceptForm
          onClose={() => {
            setAccepting(false)
          }}
        />
      )}
      {creating && (
        <ProjectCreateForm
          onClose={() => {
            setCreating(false)
          }}
        />
      )}
      <Card>
        <div className="max-w-sm">
          <TextField
            label="Search projects"
            type="search"
            value={search}
            onChange={(event) => {
              setSearch(event.target.value)
            }}
          />
        </div>
        {error && <Notice tone="bad">{errorText(error)}</Notice>}
        {data && data.projects.length === NEWEST && (
          <p className="mb-2 text-xs text-muted">The newest {count(NEWEST)} that match are shown.</p>
        )}
        <Table
          caption="Projects"
          cards
          partial={data?.projects.length === NEWEST}
          rows={data?.projects ?? []}
          rowKey={(row) => row.id}
          empty={
            !data ? (
              <Loading what="projects" />
            ) : search.trim() ? (
              'No project has that name.'
            ) : (
              'No projects yet. Create one to get a Postgres database.'
            )
          }
          columns={[
            {
              key: 'name',
              header: 'Name',
              sort: (row) => row.name,
              cell: (row) => (
                <Link
                  to="/projects/$projectId"
                  params={{ projectId: row.id }}
                  className="font-medium text-accent underline"
                >
                  {row.name}
                </Link>
              ),
            },
            { key: 'id', header: 'Id', cell: (row) => <code className="text-xs whitespace-nowrap">{row.id}</code> },
            { key: 'pg', header: 'Postgres', sort: (row) => row.pg_version, cell: (row) => row.pg_version },
            { key: 'region', header: 'Region', sort: (row) => row.region_id, cell: (row) => row.region_id },
            {
              key: 'created',
              header: 'Created',
              sort: (row) => Date.parse(row.created_at),
              cell: (row) => ago(row.created_at, now),
            },
          ]}
        />
      </Card>
    </>
  )
}
