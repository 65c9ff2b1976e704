import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'

import { errorText } from '~/api/errors'
import type { BranchDatabase, Role } from '~/api/types'
import { time } from '~/lib/format'
import { lazyDialog } from '~/shared/lazy-dialog'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { Loading, Notice } from '~/ui/Notice'
import { Table } from '~/ui/Table'

import type { DatabaseAsk } from './ask'
import { deleteRoleRefusal } from './can'
import { type BranchPlace, databasesQuery, rolesQuery } from './queries'

const DatabaseDialogs = lazyDialog(() => import('./DatabaseDialogs'), 'DatabaseDialogs')

/** Roles that log in to a branch, and its databases, as the API made them. Those made by SQL are Postgres's alone. */
export function RolesAndDatabases(place: BranchPlace) {
  const roles = useQuery(rolesQuery(place))
  const databases = useQuery(databasesQuery(place))
  const [ask, setAsk] = useState<DatabaseAsk | null>(null)
  const error = roles.error ?? databases.error
  return (
    <Card
      title="Roles and databases"
      note="Made by Weir. Those made by SQL are not listed."
      actions={
        <>
          <Button
            needs="works"
            onClick={() => {
              setAsk({ what: 'create-role' })
            }}
          >
            New role
          </Button>
          <Button
            needs="works"
            onClick={() => {
              setAsk({ what: 'create-database' })
            }}
          >
            New database
          </Button>
        </>
      }
    >
      {error && <Notice tone="bad">{errorText(error)}</Notice>}
      {roles.data && databases.data ? (
        <div className="grid gap-6">
          <RoleTable roles={roles.data.roles} databases={databases.data.databases} onAsk={setAsk} />
          <DatabaseTable databases={databases.data.databases} onAsk={setAsk} />
        </div>
      ) : (
        !error && <Loading what="roles and databases" />
      )}
      {ask && (
        <DatabaseDialogs
          place={place}
          ask={ask}
          roles={roles.data?.roles ?? []}
          onClose={() => {
            setAsk(null)
          }}
        />
      )}
    </Card>
  )
}

type Asking = { onAsk: (ask: DatabaseAsk) => void }

function RoleTable({ roles, databases, onAsk }: Asking & { roles: Role[]; databases: BranchDatabase[] }) {
  return (
    <Table
      caption="Roles"
      cards
      rows={roles}
      rowKey={(row) => row.name}
      empty="No role can log in."
      columns={[
        { key: 'name', header: 'Role', sort: (row) => row.name, cell: (row) => <code>{row.name}</code> },
        {
          key: 'changed',
          header: 'Password set',
          sort: (row) => Date.parse(row.updated_at),
          cell: (row) => time(row.updated_at),
        },
        {
          key: 'actions',
          header: <span className="sr-only">Actions</span>,
          cell: (role) => (
            <span className="flex flex-wrap justify-end gap-2">
              <Button
                needs="works"
                aria-label={`Reset the password of ${role.name}`}
                onClick={() => {
                  onAsk({ what: 'reset-password', role })
                }}
              >
                Reset password
              </Button>
              <Button
                needs="works"
                variant="danger"
                aria-label={`Delete role ${role.name}`}
                disabledReason={deleteRoleRefusal(role, roles, databases)}
                onClick={() => {
                  onAsk({ what: 'delete-role', role })
                }}
              >
                Delete
              </Button>
            </span>
          ),
        },
      ]}
    />
  )
}

function DatabaseTable({ databases, onAsk }: Asking & { databases: BranchDatabase[] }) {
  return (
    <Table
      caption="Databases"
      cards
      rows={databases}
      rowKey={(row) => row.name}
      empty="The branch has no database but Postgres’s own."
      columns={[
        { key: 'name', header: 'Database', sort: (row) => row.name, cell: (row) => <code>{row.name}</code> },
        {
          key: 'owner',
          header: 'Owner',
          sort: (row) => row.owner_name,
          cell: (row) => <code>{row.owner_name}</code>,
        },
        {
          key: 'actions',
          header: <span className="sr-only">Actions</span>,
          cell: (database) => (
            <span className="flex flex-wrap justify-end gap-2">
              <Button
                needs="works"
                aria-label={`Change the owner of ${database.name}`}
                onClick={() => {
                  onAsk({ what: 'change-owner', database })
                }}
              >
                Change owner
              </Button>
              <Button
                needs="works"
                variant="danger"
                aria-label={`Delete database ${database.name}`}
                onClick={() => {
                  onAsk({ what: 'delete-database', database })
                }}
              >
                Delete
              </Button>
            </span>
          ),
        },
      ]}
    />
  )
}
