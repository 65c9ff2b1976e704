import { useQuery } from '@tanstack/react-query'

import { errorText } from '~/api/errors'
import type { ComputeSetting } from '~/api/types'
import { Badge, type Tone } from '~/ui/Badge'
import { Card } from '~/ui/Card'
import { Loading, Notice } from '~/ui/Notice'
import { Table } from '~/ui/Table'

import { computeSettingsQuery } from './queries'

const STATES: Record<ComputeSetting['state'], { words: string; tone: Tone; means: string }> = {
  in_force: { words: 'in force', tone: 'good', means: 'Sessions begin with this value.' },
  pending_restart: { words: 'from the next start', tone: 'warn', means: 'Postgres takes this setting at its start.' },
  failed: { words: 'refused', tone: 'bad', means: 'The value of before stays in force.' },
  applying: { words: 'on its way', tone: 'accent', means: 'The compute is being told.' },
  unknown: { words: 'unknown', tone: 'neutral', means: 'The compute does not run, or does not answer.' },
}

function State({ setting }: { setting: ComputeSetting }) {
  const { words, tone, means } = STATES[setting.state]
  return (
    <span className="block">
      <Badge tone={tone} title={means}>
        {words}
      </Badge>
      {setting.reason && <span className="mt-1 block text-xs text-muted">{setting.reason}</span>}
    </span>
  )
}

const value = (text: string | null | undefined) => (text == null ? '—' : <code>{text}</code>)

/** The Postgres settings that were chosen for a compute, and what is in force of them. */
export function ComputeSettings({ computeId }: { computeId: string }) {
  const { data, error } = useQuery(computeSettingsQuery(computeId))
  return (
    <Card title="Settings" note="What was chosen for this compute, and what its Postgres says is in force.">
      {error ? (
        <Notice tone="bad">{errorText(error)}</Notice>
      ) : data ? (
        <Table
          caption="Settings of Postgres"
          cards
          rows={data.settings}
          rowKey={(row) => row.name}
          empty="No setting was chosen: everything is as Weir has it for a compute of this size."
          columns={[
            { key: 'name', header: 'Setting', cell: (row) => <code>{row.name}</code> },
            { key: 'wanted', header: 'Chosen', cell: (row) => value(row.wanted) },
            { key: 'in-force', header: 'In force', cell: (row) => value(row.in_force) },
            { key: 'state', header: 'State', cell: (row) => <State setting={row} /> },
          ]}
        />
      ) : (
        <Loading what="settings" />
      )}
    </Card>
  )
}
