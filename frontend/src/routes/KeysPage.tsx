import { useSuspenseQuery } from '@tanstack/react-query'
import { useState } from 'react'

import type { KeyAsk } from '~/features/keys/KeyForms'
import { KeyTable } from '~/features/keys/KeyTable'
import { keysQuery } from '~/features/keys/queries'
import { lazyDialog } from '~/shared/lazy-dialog'
import { PageHeader } from '~/shared/PageHeader'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'

const KeyDialogs = lazyDialog(() => import('~/features/keys/KeyForms'), 'KeyDialogs')

export function KeysPage() {
  const keys = useSuspenseQuery(keysQuery).data
  const [ask, setAsk] = useState<KeyAsk | null>(null)
  return (
    <>
      <PageHeader
        title="API keys"
        note="Programs and people sign in with them. Weir keeps hashes, so a key cannot be shown again."
        actions={
          <Button
            variant="primary"
            onClick={() => {
              setAsk({ what: 'create' })
            }}
          >
            New key
          </Button>
        }
      />
      <Card>
        <KeyTable
          keys={keys}
          onRevoke={(key) => {
            setAsk({ what: 'revoke', key })
          }}
        />
      </Card>
      {ask && (
        <KeyDialogs
          ask={ask}
          onClose={() => {
            setAsk(null)
          }}
        />
      )}
    </>
  )
}
