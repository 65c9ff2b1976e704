import { useQuery } from '@tanstack/react-query'

import { errorText } from '~/api/errors'
import type { OwnSession } from '~/api/types'
import { ago, time } from '~/lib/format'
import { useAction } from '~/shared/use-action'
import { useNow } from '~/shared/use-now'
import { Badge } from '~/ui/Badge'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { Loading, Notice } from '~/ui/Notice'
import { Table } from '~/ui/Table'

import { endSession, endSessions, ownSessionsKey, ownSessionsQuery } from './queries'

const CURRENT = 'This is the session that you use. Sign out to end it.'

/** Where the account is signed in, and how that ends. */
export function OwnSessions() {
  const { data, error } = useQuery(ownSessionsQuery)
  const now = useNow()
  const end = useAction(endSession, { done: 'The session has ended', invalidate: [ownSessionsKey] })
  const endOthers = useAction(endSessions, { done: 'All other sessions have ended', invalidate: [ownSessionsKey] })
  const sessions = data?.sessions ?? []
  const others = sessions.filter((each) => !each.current)
  return (
    <Card
      title="Sessions"
      note="Browsers in which the account is signed in. A session ends by itself when it is idle, and when it is old."
      actions={
        <Button
          variant="danger"
          busy={endOthers.isPending}
          disabledReason={others.length === 0 ? 'There is no other session.' : null}
          onClick={() => {
            endOthers.mutate(others.map(({ id }) => id))
          }}
        >
          End all others
        </Button>
      }
    >
      {error && <Notice tone="bad">{errorText(error)}</Notice>}
      {data ? (
        <Table
          caption="Sessions of this account"
          cards
          rows={sessions}
          rowKey={(row) => row.id}
          empty="There is no session: requests are made with an API key."
          columns={[
            { key: 'from', header: 'From', sort: (row) => row.address, cell: (row) => <From session={row} /> },
            {
              key: 'created',
              header: 'Signed in',
              sort: (row) => Date.parse(row.created_at),
              cell: (row) => time(row.created_at),
            },
            {
              key: 'seen',
              header: 'Last used',
              sort: (row) => Date.parse(row.last_seen_at),
              cell: (row) => (row.current ? 'now' : ago(row.last_seen_at, now)),
            },
            {
              key: 'expires',
              header: 'Ends by',
              sort: (row) => Date.parse(row.expires_at),
              cell: (row) => time(row.expires_at),
            },
            {
              key: 'actions',
              header: <span className="sr-only">Actions</span>,
              cell: (row) => (
                <span className="flex w-full justify-end">
                  <Button
                    variant="danger"
                    aria-label={`End the session from ${row.address || 'an unknown address'} of ${time(row.created_at)}`}
                    busy={end.isPending && end.variables === row.id}
                    disabledReason={row.current ? CURRENT : null}
                    onClick={() => {
                      end.mutate(row.id)
                    }}
                  >
                    End
                  </Button>
                </span>
              ),
            },
          ]}
        />
      ) : (
        !error && <Loading what="sessions" />
      )}
    </Card>
  )
}

function From({ session }: { session: OwnSession }) {
  return (
    <span className="inline-flex flex-wrap items-center gap-2">
      <code>{session.address || '—'}</code>
      {session.current && <Badge tone="accent">this one</Badge>}
    </span>
  )
}
