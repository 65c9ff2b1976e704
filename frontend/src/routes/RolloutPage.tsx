import { useSuspenseQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { FileText } from 'lucide-react'
import { useCallback, useDeferredValue, useMemo } from 'react'

import type { Rollout } from '~/api/types'
import { featureOf } from '~/features/fleet/compute-features'
import { rolloutGridQuery, rolloutQuery } from '~/features/rollouts/queries'
import { filterMembers, type GridFilter } from '~/features/rollouts/rollout-grid'
import { RolloutComputeDrawer } from '~/features/rollouts/RolloutCompute'
import { RolloutControls } from '~/features/rollouts/RolloutControls'
import { RolloutEvidence } from '~/features/rollouts/RolloutEvidence'
import { RolloutFilter } from '~/features/rollouts/RolloutFilter'
import { RolloutList, RolloutMap, WhyHeld } from '~/features/rollouts/RolloutMap'
import { RolloutAudit, RolloutPlanTab } from '~/features/rollouts/RolloutPlanTab'
import type { RolloutSearch } from '~/features/rollouts/search'
import { WaveStrip } from '~/features/rollouts/WaveStrip'
import { computes, count, duration, time } from '~/lib/format'
import { PageHeader } from '~/shared/PageHeader'
import { StateBadge } from '~/shared/StateBadge'
import { BUTTON_LINK } from '~/ui/button-link'
import { Card } from '~/ui/Card'
import { Notice } from '~/ui/Notice'

function Alerts({ rollout, onOpen }: { rollout: Rollout; onOpen: (computeId: string) => void }) {
  if (rollout.alerts.length === 0) return null
  return (
    <section aria-label="Alerts" className="mb-4 grid gap-2">
      {rollout.alerts.map((alert) => (
        <Notice key={alert.id} tone="warn" role="alert">
          <strong>{time(alert.raised_at)}</strong> {alert.message}{' '}
          {alert.compute_id && (
            <button
              type="button"
              className="underline"
              onClick={() => {
                if (alert.compute_id) onOpen(alert.compute_id)
              }}
            >
              {alert.compute_id}
            </button>
          )}
        </Notice>
      ))}
      {rollout.alerts_total > rollout.alerts.length && (
        <p className="text-sm text-muted">and {count(rollout.alerts_total - rollout.alerts.length)} more alerts</p>
      )}
    </section>
  )
}

function ReportLinks({ rollout }: { rollout: Rollout }) {
  const report = `/api/v2/rollouts/${encodeURIComponent(rollout.id)}/report`
  return (
    <>
      <a href={report} target="_blank" rel="noreferrer" className={BUTTON_LINK}>
        <FileText aria-hidden size={14} /> Report
      </a>
      <a href={`${report}?format=json`} download={`rollout-${rollout.id}.json`} className={BUTTON_LINK}>
        JSON
      </a>
    </>
  )
}

function Computes({
  rollout,
  search,
  onSearch,
}: {
  rollout: Rollout
  search: RolloutSearch
  onSearch: (search: RolloutSearch) => void
}) {
  const { data: grid } = useSuspenseQuery(rolloutGridQuery(rollout.id))
  const { view, compute, ...filter } = search
  const wanted = useDeferredValue(JSON.stringify(filter))
  const members = useMemo(() => filterMembers(grid.members, JSON.parse(wanted) as GridFilter), [grid.members, wanted])
  const select = useCallback(
    (id: string) => {
      onSearch({ ...search, compute: id })
    },
    [onSearch, search],
  )
  const keep = { ...(view ? { view } : {}), ...(compute ? { compute } : {}) }
  return (
    <Card
      title="Computes"
      note={`${count(members.length)} of ${count(grid.members.length)} shown. Choose one for its verdict and its charts around the switch.`}
    >
      <RolloutFilter
        rollout={rollout}
        grid={grid}
        filter={filter}
        list={view === 'list'}
        onFilter={(next) => {
          onSearch({ ...next, ...keep })
        }}
        onList={(list) => {
          onSearch({ ...filter, ...(list ? { view: 'list' } : {}) })
        }}
      />
      <WhyHeld
        members={members}
        onShow={(held) => {
          onSearch({
            ...filter,
            states: [held.members[0]?.state ?? ''],
            q: held.members.length === 1 ? held.reason : (filter.q ?? ''),
            view: 'list',
          })
        }}
      />
      {view === 'list' ? (
        <RolloutList members={members} waves={rollout.waves} onSelect={select} />
      ) : (
        <RolloutMap members={members} selected={compute ?? null} onSelect={select} />
      )}
    </Card>
  )
}

/** What the rollout does, how it judges and who made it, in one line. */
function summary(rollout: Rollout): string {
  const { strategy } = rollout
  const feature = [featureOf(rollout.feature).name, strategy.target_version].filter(Boolean).join(' ')
  const by = rollout.created_by ? ` by ${rollout.created_by}` : ''
  return [
    `${feature} on ${computes(rollout.computes_total)}`,
    `baseline ${duration(strategy.baseline_seconds)}, bake ${duration(strategy.bake_seconds)}`,
    `created ${time(rollout.created_at)}${by}`,
  ].join(' · ')
}

export function RolloutPage() {
  const { rolloutId } = useParams({ from: '/app/rollouts/$rolloutId' })
  const search = useSearch({ from: '/app/rollouts/$rolloutId' })
  const navigate = useNavigate({ from: '/rollouts/$rolloutId' })
  const { rollout } = useSuspenseQuery(rolloutQuery(rolloutId)).data
  const onSearch = useCallback(
    (next: RolloutSearch) => void navigate({ search: next, replace: true, resetScroll: false }),
    [navigate],
  )
  const open = (compute: string) => {
    onSearch({ ...search, compute })
  }
  return (
    <>
      <PageHeader
        above={
          <Link to="/rollouts" className="underline">
            Rollouts
          </Link>
        }
        title={rollout.name}
        badge={<StateBadge state={rollout.status} reason={rollout.status_reason} />}
        note={summary(rollout)}
        actions={
          <>
            <ReportLinks rollout={rollout} />
            <RolloutControls rollout={rollout} />
          </>
        }
      />
      {rollout.status_reason && (
        <div className="mb-4">
          <Notice tone={rollout.status === 'failed' ? 'bad' : rollout.status === 'completed' ? 'info' : 'warn'}>
            {rollout.status_reason}
          </Notice>
        </div>
      )}
      <Alerts rollout={rollout} onOpen={open} />
      <div className="grid gap-4">
        <WaveStrip rollout={rollout} />
        <Computes rollout={rollout} search={search} onSearch={onSearch} />
        <RolloutEvidence rollout={rollout} />
        <Card title="Plan" note="Frozen when the rollout was created.">
          <RolloutPlanTab rollout={rollout} />
        </Card>
        <Card title="Audit" note="Every control anybody used, and every step the rollout took by itself.">
          <RolloutAudit rolloutId={rollout.id} />
        </Card>
      </div>
      {search.compute && (
        <RolloutComputeDrawer
          rollout={rollout}
          computeId={search.compute}
          onClose={() => {
            const rest = { ...search }
            delete rest.compute
            onSearch(rest)
          }}
        />
      )}
    </>
  )
}
