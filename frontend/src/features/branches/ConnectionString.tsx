import { useState } from 'react'

import { errorText } from '~/api/errors'
import type { Branch } from '~/api/types'
import {
  certificateAuthority,
  connectionUri,
  rolesAndDatabases,
  type RolesAndDatabases,
} from '~/features/computes/endpoint-queries'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { Copy } from '~/ui/Copy'
import { Checkbox, SelectField } from '~/ui/Field'
import { Notice } from '~/ui/Notice'

import { CA_FILE, type Client, CLIENTS, snippet, verifying } from './connect-snippets'

/** What a branch has, what was chosen of it, and the string of that choice; null until the API has said it.
 * `authority`: the certificate of the proxy's CA, PEM; null where there is none to give. */
type Shown = RolesAndDatabases & {
  authority: string | null
  role: string
  database: string
  pooled: boolean
  uri: string | null
}

const options = (names: string[]) =>
  names.map((name) => (
    <option key={name} value={name}>
      {name}
    </option>
  ))

/** How clients connect to a branch. The password is fetched when somebody asks to see it, not with the page. */
export function ConnectionString({ projectId, branch }: { projectId: string; branch: Branch }) {
  const [shown, setShown] = useState<Shown | null>(null)
  const [client, setClient] = useState<Client>('url')
  const [error, setError] = useState<string | null>(null)
  const [busy, setBusy] = useState(false)

  async function show(change: Partial<Pick<Shown, 'role' | 'database' | 'pooled'>> = {}) {
    setBusy(true)
    setError(null)
    try {
      const known = shown ?? (await begin(projectId, branch.id))
      const choice = { role: known.role, database: known.database, pooled: known.pooled, ...change }
      // At once, so that a field shows what was chosen, and no string of another choice stands below it meanwhile.
      const chosen = { ...known, ...choice, uri: null }
      setShown(chosen)
      const uri = await connectionUri(projectId, branch.id, choice)
      // Somebody may have chosen something else since.
      setShown((now) => (now === chosen ? { ...chosen, uri } : now))
    } catch (failure) {
      setError(errorText(failure))
    } finally {
      setBusy(false)
    }
  }

  return (
    <Card title="Connect" note={`How clients reach branch ${branch.name}. The string holds the password.`}>
      {shown ? (
        <Choices
          {...{ shown, client, setClient }}
          onChange={(change) => {
            void show(change)
          }}
        />
      ) : (
        <Button needs="works" busy={busy} onClick={() => void show()}>
          Show connection string
        </Button>
      )}
      {error && (
        <div className="mt-2">
          <Notice tone="bad">{error}</Notice>
        </div>
      )}
    </Card>
  )
}

async function begin(projectId: string, branchId: string): Promise<Shown> {
  const [found, authority] = await Promise.all([rolesAndDatabases(projectId, branchId), certificateAuthority()])
  const database = found.databases[0]
  return {
    ...found,
    authority,
    database: database?.name ?? '',
    role: database?.owner ?? '',
    pooled: false,
    uri: null,
  }
}

type ChoicesProps = {
  shown: Shown
  client: Client
  setClient: (client: Client) => void
  onChange: (change: Partial<Pick<Shown, 'role' | 'database' | 'pooled'>>) => void
}

function Choices({ shown, client, setClient, onChange }: ChoicesProps) {
  const [verified, setVerified] = useState(false)
  const { authority, uri } = shown
  const text = uri === null ? null : snippet(client, verified && authority ? verifying(uri) : uri)
  return (
    <>
      <div className="grid gap-x-4 sm:grid-cols-3">
        <SelectField
          label="Role"
          value={shown.role}
          onChange={(event) => {
            onChange({ role: event.target.value })
          }}
        >
          {options(shown.roles)}
        </SelectField>
        <SelectField
          label="Database"
          value={shown.database}
          onChange={(event) => {
            onChange({ database: event.target.value })
          }}
        >
          {options(shown.databases.map((each) => each.name))}
        </SelectField>
        <SelectField
          label="For"
          value={client}
          onChange={(event) => {
            setClient(event.target.value as Client)
          }}
        >
          {Object.entries(CLIENTS).map(([key, words]) => (
            <option key={key} value={key}>
              {words}
            </option>
          ))}
        </SelectField>
      </div>
      <Checkbox
        label="Pooled: many clients share few sessions, each has one during a transaction"
        checked={shown.pooled}
        onChange={(pooled) => {
          onChange({ pooled })
        }}
      />
      {authority && <Checkbox label="Verify the server by its CA" checked={verified} onChange={setVerified} />}
      {authority && verified && <AuthorityFile pem={authority} />}
      <div className="mt-2 flex items-start gap-1">
        <pre className="min-w-0 flex-1 rounded-md bg-raised px-3 py-2 text-xs break-all whitespace-pre-wrap">
          <code>{text ?? '…'}</code>
        </pre>
        {text !== null && <Copy text={text} label="connection string" />}
      </div>
      <p className="mt-2 text-xs text-muted">
        A suspended compute is started while the client waits.
        {shown.pooled &&
          ' Session settings, LISTEN, temporary tables and SQL-level PREPARE need a connection that is not pooled.'}
      </p>
    </>
  )
}

function AuthorityFile({ pem }: { pem: string }) {
  return (
    <p className="mt-1 text-xs text-muted">
      The client reads{' '}
      <a className="underline" download={CA_FILE} href={`data:application/x-pem-file,${encodeURIComponent(pem)}`}>
        {CA_FILE}
      </a>{' '}
      from the folder in which it runs.
    </p>
  )
}
