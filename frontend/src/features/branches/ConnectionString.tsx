import { useState } from 'react'

import { errorText } from '~/api/errors'
import type { Branch } from '~/api/types'
import { branchRolesAndDatabases, connectionUri } from '~/features/computes/endpoint-queries'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { Copy } from '~/ui/Copy'
import { Notice } from '~/ui/Notice'

/** The password is fetched when somebody asks to see it, not with the page. */
export function ConnectionString({ projectId, branch }: { projectId: string; branch: Branch }) {
  const [uri, setUri] = useState<string | null>(null)
  const [error, setError] = useState<string | null>(null)
  const [busy, setBusy] = useState(false)

  async function reveal() {
    setBusy(true)
    setError(null)
    try {
      const { role, database } = await branchRolesAndDatabases(projectId, branch.id)
      setUri(await connectionUri(projectId, branch.id, role, database))
    } catch (failure) {
      setError(errorText(failure))
    } finally {
      setBusy(false)
    }
  }

  return (
    <Card title="Connect" note={`Connection string of branch ${branch.name}; it holds the password.`}>
      {uri ? (
        <div className="flex items-center gap-1">
          <code className="min-w-0 flex-1 overflow-x-auto rounded-md bg-raised px-3 py-2 text-xs whitespace-nowrap">
            {uri}
          </code>
          <Copy text={uri} label="connection string" />
        </div>
      ) : (
        <Button busy={busy} onClick={() => void reveal()}>
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
