import type { ReactNode } from 'react'

import type { AuditEntry } from '~/api/types'
import { time } from '~/lib/format'
import { stateText } from '~/shared/states'
import { Card } from '~/ui/Card'
import { Copy } from '~/ui/Copy'
import { Drawer } from '~/ui/Drawer'
import { Table } from '~/ui/Table'

import { type Change, saidOf } from './changes'

const shown = (value: unknown): string =>
  value === undefined || value === null ? '—' : typeof value === 'string' ? value : JSON.stringify(value)

/** All that one entry says, with what was before beside what came after. */
export function AuditEntryDrawer({ entry, onClose }: { entry: AuditEntry; onClose: () => void }) {
  const { changes, rest } = saidOf(entry.detail)
  const json = JSON.stringify(entry, null, 2)
  return (
    <Drawer title={`${entry.action} by ${entry.actor}`} onClose={onClose}>
      <div className="grid gap-4">
        <Card title="Entry">
          <dl className="grid gap-3 text-sm sm:grid-cols-2">
            <Fact name="When">{time(entry.at)}</Fact>
            <Fact name="Who">{entry.actor}</Fact>
            <Fact name="From">{entry.address || 'Weir itself'}</Fact>
            <Fact name="With">
              {entry.api_key_id === null ? 'no API key' : `API key ${String(entry.api_key_id)}`}
            </Fact>
            <Fact name="On">
              <code>{entry.resource}</code>
            </Fact>
            <Fact name="Project">{entry.project_id ?? 'none'}</Fact>
            <Fact name="Request">
              <code>{entry.request_id || '—'}</code>
            </Fact>
            <Fact name="Entry">{String(entry.id)}</Fact>
          </dl>
        </Card>
        {changes.length > 0 && <Changes changes={changes} />}
        {rest.length > 0 && (
          <Card title={changes.length > 0 ? 'What else was asked for' : 'What was asked for'}>
            <dl className="grid gap-3 text-sm sm:grid-cols-2">
              {rest.map(([name, value]) => (
                <Fact key={name} name={stateText(name)}>
                  {shown(value)}
                </Fact>
              ))}
            </dl>
          </Card>
        )}
        <Card title="As the API has it" actions={<Copy text={json} label="entry" />}>
          <pre className="text-xs break-all whitespace-pre-wrap">
            <code>{json}</code>
          </pre>
        </Card>
      </div>
    </Drawer>
  )
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div className="min-w-0">
      <dt className="text-xs text-muted">{name}</dt>
      <dd>{children}</dd>
    </div>
  )
}

function Changes({ changes }: { changes: Change[] }) {
  return (
    <Card title="What changed">
      <Table
        caption="Before and after"
        cards
        rows={changes}
        rowKey={(row) => row.name}
        empty=""
        columns={[
          { key: 'name', header: 'What', cell: (row) => stateText(row.name) },
          {
            key: 'before',
            header: 'Before',
            cell: (row) => <code className="break-all">{shown(row.before)}</code>,
          },
          {
            key: 'after',
            header: 'After',
            cell: (row) => <code className="font-semibold break-all">{shown(row.after)}</code>,
          },
        ]}
      />
    </Card>
  )
}
