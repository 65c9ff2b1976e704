import { useQuery, useSuspenseQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'

import { errorText } from '~/api/errors'
import type { Branch } from '~/api/types'
import { branchesQuery } from '~/features/branches/queries'
import { databasesQuery } from '~/features/databases/queries'
import { projectQuery } from '~/features/projects/queries'
import { schemaDiffQuery } from '~/features/schemas/queries'
import { SchemaDiff } from '~/features/schemas/SchemaDiff'
import { PageHeader } from '~/shared/PageHeader'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { SelectField } from '~/ui/Field'
import { Loading, Notice } from '~/ui/Notice'

type Sides = { base: Branch; branch: Branch; db: string }

function Difference({ projectId, base, branch, db }: Sides & { projectId: string }) {
  const asked = useQuery(schemaDiffQuery(projectId, { base: base.id, branch: branch.id, db }))
  return (
    <Card
      title={`Database ${db}`}
      note="What pg_dump --schema-only writes, read as the database’s owner."
      actions={
        <Button
          busy={asked.isFetching}
          onClick={() => {
            void asked.refetch()
          }}
        >
          Compare again
        </Button>
      }
    >
      {asked.error && <Notice tone="bad">{errorText(asked.error)}</Notice>}
      {asked.data && !asked.error && <SchemaDiff diff={asked.data.diff} base={base.name} branch={branch.name} />}
      {asked.isPending && <Loading what="schemas" />}
    </Card>
  )
}

export function SchemaDiffPage() {
  const from = '/app/projects/$projectId/schemas'
  const { projectId } = useParams({ from })
  const search = useSearch({ from })
  const navigate = useNavigate()
  const { project } = useSuspenseQuery(projectQuery(projectId)).data
  const { branches } = useSuspenseQuery(branchesQuery(projectId)).data
  const base = branches.find((each) => each.id === search.base) ?? branches.find((each) => each.default)
  const branch =
    branches.find((each) => each.id === search.branch) ?? branches.find((each) => each.id !== base?.id) ?? base
  const databases = useQuery({
    ...databasesQuery({ projectId, branchId: branch?.id ?? '' }),
    enabled: branch !== undefined,
  })
  const names = databases.data?.databases.map((each) => each.name) ?? []
  const db = search.db !== undefined && names.includes(search.db) ? search.db : names[0]
  const choose = (next: { base?: string; branch?: string; db?: string }) => {
    void navigate({
      to: '/projects/$projectId/schemas',
      params: { projectId },
      search: { ...search, ...next },
      replace: true,
    })
  }
  const options = branches.map((each) => (
    <option key={each.id} value={each.id}>
      {each.name}
    </option>
  ))
  return (
    <>
      <PageHeader
        above={
          <Link to="/projects/$projectId" params={{ projectId }} className="underline">
            {project.name}
          </Link>
        }
        title="Compare schemas"
        note="How the schema of a branch differs from another branch’s. Both need a compute; one that is suspended is started."
      />
      <div className="grid gap-4">
        <Card title="What to compare">
          <div className="grid gap-3 sm:grid-cols-3">
            <SelectField
              label="From branch"
              value={base?.id ?? ''}
              onChange={(event) => {
                choose({ base: event.target.value })
              }}
            >
              {options}
            </SelectField>
            <SelectField
              label="To branch"
              value={branch?.id ?? ''}
              onChange={(event) => {
                choose({ branch: event.target.value })
              }}
            >
              {options}
            </SelectField>
            <SelectField
              label="Database"
              value={db ?? ''}
              onChange={(event) => {
                choose({ db: event.target.value })
              }}
            >
              {names.map((name) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
            </SelectField>
          </div>
          {databases.error && <Notice tone="bad">{errorText(databases.error)}</Notice>}
        </Card>
        {base && branch && base.id === branch.id && (
          <Notice>Choose two branches: the schema of one is the same as itself.</Notice>
        )}
        {base && branch && base.id !== branch.id && db !== undefined && (
          <Difference projectId={projectId} base={base} branch={branch} db={db} />
        )}
      </div>
    </>
  )
}
