import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'

import { errorText } from '~/api/errors'
import { refusal } from '~/features/session/access'
import { useSessionUser } from '~/features/session/use-session'
import { lazyDialog } from '~/shared/lazy-dialog'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { Loading, Notice } from '~/ui/Notice'

import type { KeyAsk } from './KeyForms'
import { KeyTable } from './KeyTable'
import { keysQuery } from './queries'

const KeyDialogs = lazyDialog(() => import('./KeyForms'), 'KeyDialogs')

/** API keys of the organisation that the console acts in, as far as who is signed in may see them. `own`: theirs alone. */
export function Keys({ own = false }: { own?: boolean }) {
  const user = useSessionUser()
  const { data, error } = useQuery(keysQuery)
  const [ask, setAsk] = useState<KeyAsk | null>(null)
  const refused = refusal(user, { least: 'member', whole: true })
  const all = refusal(user, { least: 'admin', whole: true }) === null
  const keys = own ? data?.filter(({ created_by: by }) => by.id === user.id) : data
  return (
    <Card
      title={own ? 'Your API keys' : 'API keys'}
      note={`${own || all ? '' : 'Those that you made. '}${refused === null ? 'Weir keeps hashes, so a key cannot be shown again.' : 'Viewers make no keys.'}`}
      actions={
        <Button
          variant={own ? 'secondary' : 'primary'}
          disabledReason={refused}
          onClick={() => {
            setAsk({ what: 'create' })
          }}
        >
          New key
        </Button>
      }
    >
      {error && <Notice tone="bad">{errorText(error)}</Notice>}
      {keys ? (
        <KeyTable
          keys={keys}
          empty={own ? 'You have made no key here.' : 'There is no key.'}
          refused={refused}
          onRevoke={(key) => {
            setAsk({ what: 'revoke', key })
          }}
        />
      ) : (
        !error && <Loading what="keys" />
      )}
      {ask && (
        <KeyDialogs
          ask={ask}
          onClose={() => {
            setAsk(null)
          }}
        />
      )}
    </Card>
  )
}
