import { useQuery, useSuspenseQuery } from '@tanstack/react-query'
import { Link, useParams } from '@tanstack/react-router'
import { useState } from 'react'

import { errorText } from '~/api/errors'
import type { ComputeDetail } from '~/api/types'
import { ComputeSettings } from '~/features/computes/ComputeSettings'
import { PushdownBadge } from '~/features/computes/ComputeTable'
import { versionHint } from '~/features/computes/PostgresVersion'
import { prewarmNote, prewarmText } from '~/features/computes/prewarm'
import { computeMetricsQuery, computeQuery } from '~/features/computes/queries'
import { loadNote, sizeText } from '~/features/computes/size'
import { WalCost } from '~/features/computes/WalCost'
import { ChosenLevels } from '~/features/durability/ChosenLevels'
import { FACTS } from '~/features/durability/levels'
import { ago, bytes, bytesPerSecond, perSecond, seconds } from '~/lib/format'
import { MetricCharts } from '~/shared/MetricCharts'
import { PageHeader } from '~/shared/PageHeader'
import { StateBadge } from '~/shared/StateBadge'
import { useNow } from '~/shared/use-now'
import { Badge } from '~/ui/Badge'
import { Card } from '~/ui/Card'
import { SelectField } from '~/ui/Field'
import { Loading, Notice } from '~/ui/Notice'
import { Stat, Stats } from '~/ui/Stat'

const SPANS = [
  { minutes: 15, label: 'Last 15 minutes' },
  { minutes: 60, label: 'Last hour' },
  { minutes: 360, label: 'Last 6 hours' },
]

type Level = ComputeDetail['durability']

function CommitLevel({ durability: { wanted, actual } }: { durability: Level }) {
  const level = actual ?? wanted
  if (!level) return <>—</>
  return (
    <span className="inline-flex flex-wrap items-center gap-1.5">
      {FACTS[level].name}
      {actual && wanted && actual !== wanted && <Badge tone="warn">should be {FACTS[wanted].name}</Badge>}
    </span>
  )
}

function commitNote({ wanted, actual }: Level): string | undefined {
  const level = actual ?? wanted
  return level ? `${FACTS[level].returns}; sessions can choose otherwise` : undefined
}

export function ComputePage() {
  const { computeId } = useParams({ from: '/app/computes/$computeId' })
  const { compute } = useSuspenseQuery(computeQuery(computeId)).data
  const [minutes, setMinutes] = useState(15)
  const metrics = useQuery(computeMetricsQuery(computeId, minutes))
  const now = useNow()
  const { rates, start, commits_unconfirmed: unconfirmed } = compute
  const window = rates ? `over ${String(rates.window_seconds)} s, from Prometheus` : undefined
  return (
    <>
      <PageHeader
        above={
          <>
            <Link to="/projects/$projectId" params={{ projectId: compute.project_id }} className="underline">
              {compute.project_name}
            </Link>{' '}
            /{' '}
            <Link
              to="/projects/$projectId/branches/$branchId"
              params={{ projectId: compute.project_id, branchId: compute.branch_id }}
              className="underline"
            >
              {compute.branch_name}
            </Link>
          </>
        }
        title={compute.id}
        badge={<StateBadge state={compute.state} reason={compute.reason} />}
        note={
          <>
            {compute.host}:{compute.port} · started {ago(compute.started_at, now)}
          </>
        }
      />
      {compute.reason && (
        <div className="mb-4">
          <Notice tone="warn">{compute.reason}</Notice>
        </div>
      )}
      <div className="grid gap-4">
        <Card title="Now">
          <Stats>
            <Stat
              label="Image pushdown"
              value={<PushdownBadge fpw={compute.full_page_writes} />}
              note={
                compute.full_page_writes.lsn ? `last switched at ${compute.full_page_writes.lsn}` : 'never switched'
              }
            />
            <Stat label="WAL, page images" value={bytesPerSecond(rates?.wal_image_bytes_per_second)} note={window} />
            <Stat label="WAL, rest" value={bytesPerSecond(rates?.wal_rest_bytes_per_second)} note={window} />
            <Stat label="Transactions" value={perSecond(rates?.transactions_per_second)} note={window} />
            <Stat
              label="Commit LSN"
              value={compute.commit_lsn ?? '—'}
              note={`term ${String(compute.term ?? '—')}, ingested ${compute.ingested_lsn ?? '—'}`}
            />
            <Stat
              label="Time to first query"
              value={seconds(start?.total_ms == null ? null : start.total_ms / 1000)}
              note={start ? `${String(start.pages_fetched)} pages (${bytes(start.bytes_fetched)}) read` : undefined}
            />
            <Stat label="Warm start" value={prewarmText(compute.prewarm)} note={prewarmNote(compute.prewarm)} />
            <Stat label="Size" value={sizeText(compute.current_cu)} note={loadNote(compute.load)} />
            <Stat label="Postgres" value={compute.postgres_version ?? '—'} note={versionHint(compute)} />
            <Stat label="Restarts" value={compute.restarts ?? '—'} note="since the compute was started" />
            <Stat
              label="Commits return once"
              value={<CommitLevel durability={compute.durability} />}
              note={commitNote(compute.durability)}
            />
            <Stat
              label="Commits unconfirmed"
              value={unconfirmed == null ? '—' : unconfirmed.canceled + unconfirmed.terminated}
              note={
                unconfirmed == null
                  ? undefined
                  : `visible without a majority; ${String(compute.commits_waiting ?? 0)} wait now`
              }
            />
          </Stats>
        </Card>
        {compute.state === 'active' && (
          <Card
            title="Levels of commits"
            note="What roles and databases have chosen for their sessions, in place of the branch’s level."
          >
            <ChosenLevels computeId={computeId} />
          </Card>
        )}
        <ComputeSettings computeId={computeId} />
        <div className="w-56">
          <SelectField
            label="Charts show"
            value={minutes}
            onChange={(event) => {
              setMinutes(Number(event.target.value))
            }}
          >
            {SPANS.map((span) => (
              <option key={span.minutes} value={span.minutes}>
                {span.label}
              </option>
            ))}
          </SelectField>
        </div>
        {metrics.error ? (
          <Notice tone="bad">{errorText(metrics.error)}</Notice>
        ) : metrics.data ? (
          <MetricCharts metrics={metrics.data} />
        ) : (
          <Loading what="metrics" />
        )}
        <WalCost computeId={computeId} />
      </div>
    </>
  )
}
