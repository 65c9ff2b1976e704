import { useQuery } from '@tanstack/react-query'

import { errorText } from '~/api/errors'
import type { EvidenceSum, Rollout, RolloutEvidence as Evidence } from '~/api/types'
import { bytes, bytesPerSecond, change, computes, count, seconds } from '~/lib/format'
import { Card } from '~/ui/Card'
import { Loading, Notice } from '~/ui/Notice'
import { Stat, Stats } from '~/ui/Stat'
import { type Column, Table } from '~/ui/Table'

import { isOver } from './can'
import { changeTable, TOGETHER } from './evidence'
import { rolloutEvidenceQuery } from './queries'

type Part = EvidenceSum & { key: string; name: string }

function changed<Row extends EvidenceSum>(
  key: string,
  header: string,
  of: (row: Row['before']) => number | null | undefined,
  format: (value: number | null | undefined) => string,
): Column<Row> {
  return {
    key,
    header,
    numeric: true,
    cell: (row) => (
      <span title={`${format(of(row.before))} before, ${format(of(row.after))} after`}>
        {format(of(row.before))} → {format(of(row.after))}{' '}
        <span className="text-muted">{change(of(row.before), of(row.after))}</span>
      </span>
    ),
  }
}

function Parts({ caption, of, parts }: { caption: string; of: string; parts: Part[] }) {
  return (
    <Table
      caption={caption}
      rows={parts}
      rowKey={(row) => row.key}
      empty="Nothing has been measured yet."
      cards
      columns={[
        { key: 'name', header: of, cell: (row) => row.name },
        { key: 'computes', header: 'Measured', numeric: true, cell: (row) => count(row.computes) },
        changed<Part>('wal', 'WAL a transaction', (window) => window.wal_bytes_per_transaction, bytes),
        changed<Part>('commit', 'Commit p99', (window) => window.commit_p99_seconds, seconds),
        changed<Part>('read', 'Storage read p99', (window) => window.storage_read_p99_seconds, seconds),
        {
          key: 'saved',
          header: 'WAL saved',
          numeric: true,
          cell: (row) => bytesPerSecond(row.wal_saved_bytes_per_second),
        },
      ]}
    />
  )
}

function ByRmgr({ fleet }: { fleet: EvidenceSum }) {
  const [before, after] = [fleet.before.by_rmgr ?? [], fleet.after.by_rmgr ?? []]
  const rows = [...new Set([...before, ...after].map((row) => row.rmgr))].map((rmgr) => ({
    rmgr,
    before: before.find((row) => row.rmgr === rmgr),
    after: after.find((row) => row.rmgr === rmgr),
  }))
  return (
    <Table
      caption="WAL a transaction by resource manager"
      rows={rows}
      rowKey={(row) => row.rmgr}
      empty="No WAL was measured."
      cards
      columns={[
        { key: 'rmgr', header: 'Resource manager', cell: (row) => row.rmgr },
        {
          key: 'images-before',
          header: 'Images before',
          numeric: true,
          cell: (row) => bytes(row.before?.image_bytes_per_transaction),
        },
        {
          key: 'images-after',
          header: 'Images after',
          numeric: true,
          cell: (row) => bytes(row.after?.image_bytes_per_transaction),
        },
        {
          key: 'rest-before',
          header: 'Rest before',
          numeric: true,
          cell: (row) => bytes(row.before?.rest_bytes_per_transaction),
        },
        {
          key: 'rest-after',
          header: 'Rest after',
          numeric: true,
          cell: (row) => bytes(row.after?.rest_bytes_per_transaction),
        },
      ]}
    />
  )
}

function Body({ evidence, pushdown }: { evidence: Evidence; pushdown: boolean }) {
  const { fleet } = evidence
  const waves = evidence.waves.flatMap((wave) => (wave.computes > 0 ? [{ ...wave, key: String(wave.index) }] : []))
  const cells = evidence.cells.map((cell) => ({
    ...cell,
    key: `${cell.region_id}/${cell.cell}`,
    name: `${cell.region_id} / ${cell.cell}`,
  }))
  const window = `over ${seconds(fleet.after.seconds)} after the switch`
  return (
    <div className="grid gap-5">
      <Stats>
        <Stat
          label="WAL a transaction"
          value={change(fleet.before.wal_bytes_per_transaction, fleet.after.wal_bytes_per_transaction)}
          note={`${bytes(fleet.before.wal_bytes_per_transaction)} → ${bytes(fleet.after.wal_bytes_per_transaction)}`}
        />
        {pushdown && (
          <Stat
            label="WAL saved"
            value={bytesPerSecond(fleet.wal_saved_bytes_per_second)}
            note={`at the transactions ${window}`}
          />
        )}
        <Stat
          label="Commit p99"
          value={change(fleet.before.commit_p99_seconds, fleet.after.commit_p99_seconds)}
          note={`${seconds(fleet.before.commit_p99_seconds)} → ${seconds(fleet.after.commit_p99_seconds)}`}
        />
        <Stat
          label="Storage read p99"
          value={change(fleet.before.storage_read_p99_seconds, fleet.after.storage_read_p99_seconds)}
          note={`${seconds(fleet.before.storage_read_p99_seconds)} → ${seconds(fleet.after.storage_read_p99_seconds)}`}
        />
        {pushdown && (
          <Stat
            label="Images made by storage"
            value={bytesPerSecond(fleet.after.storage_image_bytes_per_second)}
            note={`${window}; ${bytesPerSecond(fleet.before.storage_image_bytes_per_second)} before`}
          />
        )}
      </Stats>
      {waves.length > 1 && <Parts caption="Evidence by wave" of="Wave" parts={waves} />}
      {cells.length > 1 && <Parts caption="Evidence by cell" of="Region / cell" parts={cells} />}
      <details>
        <summary className="cursor-pointer text-sm font-medium">Every figure, and where the WAL came from</summary>
        <div className="mt-3 grid items-start gap-4 lg:grid-cols-2">
          <Table
            {...changeTable(
              'All computes before and after',
              TOGETHER.map((row) => ({ ...row, before: fleet.before[row.name], after: fleet.after[row.name] })),
            )}
          />
          <ByRmgr fleet={fleet} />
        </div>
      </details>
    </div>
  )
}

/** What the rollout did, measured: all computes together, by wave and by cell. */
export function RolloutEvidence({ rollout }: { rollout: Rollout }) {
  const { data, error } = useQuery(rolloutEvidenceQuery(rollout.id, !isOver(rollout)))
  const note =
    data && data.members_measured > 0
      ? `${count(data.members_measured)} of ${computes(data.members_total)} measured in both windows ` +
        'and taken together; kept when Prometheus has forgotten.'
      : undefined
  return (
    <Card title="Evidence" note={note}>
      {error ? (
        <Notice tone="bad">{errorText(error)}</Notice>
      ) : !data ? (
        <Loading what="evidence" />
      ) : data.members_measured === 0 ? (
        <p className="text-muted">
          {rollout.strategy.bake_seconds === 0
            ? 'Nothing is measured: this rollout was planned without windows.'
            : 'Comes with the first compute whose both windows are measured.'}
        </p>
      ) : (
        <Body evidence={data} pushdown={rollout.feature === 'image_pushdown'} />
      )}
    </Card>
  )
}
