import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'

import { errorText } from '~/api/errors'
import type { WalCost as Cost } from '~/api/types'
import { bytes, bytesPerSecond, count, percent, seconds } from '~/lib/format'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { SelectField } from '~/ui/Field'
import { Loading, Notice } from '~/ui/Notice'
import { Stat, Stats } from '~/ui/Stat'
import { StateBar } from '~/ui/StateBar'
import { Table } from '~/ui/Table'

import { walCostQuery } from './queries'
import { WhatIf } from './WhatIf'

const WINDOWS = [300, 3_600, 86_400]

function Split({ of, images, rest }: { of: string; images: number; rest: number }) {
  return (
    <span className="block w-20">
      <StateBar
        label={of}
        shares={[
          { key: 'images', label: 'bytes of page images', count: images, color: '--chart-images' },
          { key: 'rest', label: 'bytes of the rest', count: rest, color: '--chart-rest' },
        ]}
      />
    </span>
  )
}

function Totals({ cost }: { cost: Cost }) {
  const { wal, settings } = cost
  const window = `over ${seconds(cost.window_seconds)}, from Prometheus`
  const each =
    wal.image_bytes_per_transaction == null || wal.rest_bytes_per_transaction == null
      ? null
      : wal.image_bytes_per_transaction + wal.rest_bytes_per_transaction
  return (
    <Stats>
      <Stat
        label="Page images"
        value={bytesPerSecond(wal.image_bytes_per_second)}
        note={`${percent(wal.image_share)} of the WAL ${window}`}
      />
      <Stat label="The rest" value={bytesPerSecond(wal.rest_bytes_per_second)} note={window} />
      <Stat
        label="WAL a transaction"
        value={bytes(each)}
        note={`of it ${bytes(wal.image_bytes_per_transaction)} page images, ${window}`}
      />
      <Stat
        label="Checkpoints"
        value={cost.checkpoints_per_hour == null ? '—' : `${count(cost.checkpoints_per_hour)}/h`}
        note={`${bytes(cost.wal_bytes_between_checkpoints)} of WAL between two, ${window}`}
      />
      <Stat
        label="max_wal_size"
        value={bytes(settings?.max_wal_size_bytes)}
        note={
          settings
            ? `checkpoint_timeout ${seconds(settings.checkpoint_timeout_seconds)}, ` +
              `wal_compression ${settings.wal_compression ?? '—'}, asked of Postgres`
            : 'the compute does not answer'
        }
      />
    </Stats>
  )
}

function ByRmgr({ cost }: { cost: Cost }) {
  return (
    <Table
      caption="WAL by resource manager"
      cards
      rows={cost.by_rmgr.filter((row) => row.image_bytes_per_second + row.rest_bytes_per_second > 0)}
      rowKey={(row) => row.rmgr}
      empty="No WAL was written in this window."
      columns={[
        { key: 'rmgr', header: 'Resource manager', cell: (row) => row.rmgr },
        {
          key: 'split',
          header: 'Images, rest',
          cell: (row) => (
            <Split
              of={row.rmgr}
              images={Math.round(row.image_bytes_per_second)}
              rest={Math.round(row.rest_bytes_per_second)}
            />
          ),
        },
        {
          key: 'images',
          header: 'Page images',
          numeric: true,
          cell: (row) => bytesPerSecond(row.image_bytes_per_second),
        },
        { key: 'rest', header: 'Rest', numeric: true, cell: (row) => bytesPerSecond(row.rest_bytes_per_second) },
      ]}
    />
  )
}

/** The relations that matter; the rest on demand. */
const RELATIONS_SHOWN = 12

function ByRelation({ cost }: { cost: Cost }) {
  const [all, setAll] = useState(false)
  const found = cost.by_relation
  if (!found) return <p className="text-muted">{cost.by_relation_reason ?? 'The compute does not say.'}</p>
  return (
    <>
      <Table
        caption="WAL by relation"
        rows={all ? found.relations : found.relations.slice(0, RELATIONS_SHOWN)}
        rowKey={(row) => `${String(row.tablespace_oid)}/${String(row.database_oid)}/${String(row.relfilenode)}`}
        empty="No relation was changed in this window."
        cards
        columns={[
          {
            key: 'relation',
            header: 'Relation',
            cell: (row) =>
              row.relation ? (
                <span>
                  {row.schema}.{row.relation}{' '}
                  <span className="text-xs text-muted">
                    {row.kind}, {row.database}
                  </span>
                </span>
              ) : (
                <span className="text-muted">file {row.relfilenode}: dropped or rewritten since</span>
              ),
          },
          {
            key: 'split',
            header: 'Images, rest',
            cell: (row) => (
              <Split of={row.relation ?? String(row.relfilenode)} images={row.image_bytes} rest={row.rest_bytes} />
            ),
          },
          { key: 'images', header: 'Page images', numeric: true, cell: (row) => bytes(row.image_bytes) },
          { key: 'rest', header: 'Rest', numeric: true, cell: (row) => bytes(row.rest_bytes) },
          { key: 'records', header: 'Records', numeric: true, cell: (row) => count(row.records) },
        ]}
      />
      {!all && found.relations.length > RELATIONS_SHOWN && (
        <Button
          className="mt-2"
          onClick={() => {
            setAll(true)
          }}
        >
          Show all {count(found.relations.length)}
        </Button>
      )}
      <p className="mt-2 text-xs text-muted">
        Not of one relation (commits, checkpoints):{' '}
        {bytes(found.without_relation.image_bytes + found.without_relation.rest_bytes)}. Of relations beyond this
        list: {bytes(found.other.image_bytes + found.other.rest_bytes)}.
        {found.undercounted_by_at_most_bytes > 0 &&
          ` Each may be up to ${bytes(found.undercounted_by_at_most_bytes)} more.`}
      </p>
    </>
  )
}

/** Where a compute's WAL comes from, and what would make it less. */
export function WalCost({ computeId }: { computeId: string }) {
  const [window, setWindow] = useState(WINDOWS[0] ?? 300)
  const { data, error } = useQuery(walCostQuery(computeId, window))
  const relations = data?.by_relation
  return (
    <div className="grid gap-4">
      <Card
        title="What its WAL costs"
        actions={
          <SelectField
            label="WAL of the last"
            value={window}
            onChange={(event) => {
              setWindow(Number(event.target.value))
            }}
          >
            {WINDOWS.map((each) => (
              <option key={each} value={each}>
                {seconds(each)}
              </option>
            ))}
          </SelectField>
        }
      >
        {error ? (
          <Notice tone="bad">{errorText(error)}</Notice>
        ) : data ? (
          <Totals cost={data} />
        ) : (
          <Loading what="WAL" />
        )}
      </Card>
      {data && (
        <>
          <div className="grid items-start gap-4 lg:grid-cols-[2fr_3fr]">
            <Card title="By resource manager" note={`Over ${seconds(data.window_seconds)}, from Prometheus.`}>
              <ByRmgr cost={data} />
            </Card>
            <Card
              title="By relation"
              note={
                relations
                  ? `Counted by the compute's agent over the last ${seconds(relations.window_seconds)}.`
                  : undefined
              }
            >
              <ByRelation cost={data} />
            </Card>
          </div>
          <WhatIf whatIf={data.what_if} />
        </>
      )}
    </div>
  )
}
