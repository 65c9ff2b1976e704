import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'

import { errorText } from '~/api/errors'
import type { Rollout, RolloutCompute as Compute } from '~/api/types'
import { bytes, bytesPerSecond, count, duration, time } from '~/lib/format'
import { MetricCharts } from '~/shared/MetricCharts'
import { StateBadge } from '~/shared/StateBadge'
import { Card } from '~/ui/Card'
import type { Marker, Window } from '~/ui/chart-annotations'
import { Drawer } from '~/ui/Drawer'
import { Loading, Notice } from '~/ui/Notice'
import { Stat, Stats } from '~/ui/Stat'

import { computeRefusal, isOver } from './can'
import { EvidenceTable } from './EvidenceTable'
import { memberLook } from './member-states'
import { rolloutComputeQuery, rolloutCourseQuery } from './queries'
import { ControlButton } from './RolloutControls'
import { Verdict } from './Verdict'

const unix = (text: string) => new Date(text).getTime() / 1000

/** A window that is still being measured ends now. */
const endOf = (window: { to: string | null }) => (window.to ? unix(window.to) : Date.now() / 1000)

function windowsOf({ baseline, after, baseline_seconds, bake_seconds }: Compute): Window[] {
  const windows: Window[] = []
  // Planned without windows, nothing is measured in the moment that stands for one.
  if (baseline_seconds === 0 && bake_seconds === 0) return windows
  if (baseline)
    windows.push({ from: unix(baseline.from), to: endOf(baseline), label: 'before', shade: '--shade-before' })
  if (after) windows.push({ from: unix(after.from), to: endOf(after), label: 'after', shade: '--shade-after' })
  return windows
}

function markersOf(compute: Compute): Marker[] {
  const at = compute.confirmed_at ?? compute.switched_at
  return [
    ...(at ? [{ at: unix(at), label: 'switched' }] : []),
    ...(compute.rolled_back_at ? [{ at: unix(compute.rolled_back_at), label: 'rolled back' }] : []),
  ]
}

function Charts({ rollout, compute }: { rollout: Rollout; compute: Compute }) {
  const measuring = !compute.after?.to && !isOver(rollout)
  const { data, error } = useQuery(rolloutCourseQuery(rollout.id, compute.compute_id, measuring))
  if (error) return <Notice tone="bad">{errorText(error)}</Notice>
  if (!data) return <Loading what="charts" />
  const { course } = data
  if (course.times.length === 0)
    return (
      <Notice>
        No figures are kept of this compute around its switch: Prometheus has forgotten them, and nothing was judged.
      </Notice>
    )
  return (
    <section aria-label="Around the switch" className="grid gap-3">
      {course.expected && (
        <p className="text-sm text-muted">
          Broken lines are what was to be expected:{' '}
          {course.controls === 1 ? 'one compute that was' : `${count(course.controls)} computes that were`} not
          switched meanwhile, scaled to this one’s baseline. The verdict compares with them.
        </p>
      )}
      <MetricCharts
        metrics={course}
        expected={course.expected}
        source={course.source === 'kept' ? 'kept with the verdict' : 'from Prometheus'}
        markers={markersOf(compute)}
        windows={windowsOf(compute)}
      />
    </section>
  )
}

function backNote({ target_version, rollback_lsn, back_downtime_seconds }: Compute): string | undefined {
  if (target_version)
    return back_downtime_seconds == null
      ? undefined
      : `accepted no connections for ${duration(back_downtime_seconds)}`
  return rollback_lsn ? `XLOG_FPW_CHANGE at ${rollback_lsn}` : undefined
}

function Facts({ rollout, compute }: { rollout: Rollout; compute: Compute }) {
  const wave = rollout.waves.find((each) => each.index === compute.wave)
  return (
    <Stats>
      <Stat label="Wave, cell" value={wave?.name ?? compute.wave} note={`${compute.region_id} / ${compute.cell}`} />
      <Stat
        label="Switched"
        value={compute.switched_at ? time(compute.switched_at) : 'not yet'}
        note={compute.fpw_change_lsn ? `XLOG_FPW_CHANGE at ${compute.fpw_change_lsn}` : undefined}
      />
      <Stat
        label="Confirmed"
        value={compute.confirmed_at ? time(compute.confirmed_at) : 'not yet'}
        note={
          compute.target_version
            ? 'its agent says the minor, and it serves queries'
            : 'on a safekeeper majority and in storage'
        }
      />
      {compute.target_version && (
        <Stat
          label="Postgres"
          value={`${compute.previous_version ?? '?'} → ${compute.target_version}`}
          note={
            compute.downtime_seconds == null
              ? undefined
              : `accepted no connections for ${duration(compute.downtime_seconds)}`
          }
        />
      )}
      {compute.rolled_back_at && (
        <Stat label="Went back" value={time(compute.rolled_back_at)} note={backNote(compute)} />
      )}
      <Stat
        label="WAL when planned"
        value={bytesPerSecond(compute.wal_bytes_per_second)}
        note={
          compute.target_version
            ? 'from Prometheus'
            : `page images ${bytesPerSecond(compute.expected_wal_saved_bytes_per_second)}, from Prometheus`
        }
      />
      <Stat label="Size when planned" value={bytes(compute.size_bytes)} note="of the branch, from storage" />
      <Stat
        label="Windows"
        value={`${duration(compute.baseline_seconds)}, ${duration(compute.bake_seconds)}`}
        note="baseline, bake: whole checkpoint cycles"
      />
    </Stats>
  )
}

function Body({ rollout, compute }: { rollout: Rollout; compute: Compute }) {
  const late = compute.deadline_at && new Date(compute.deadline_at) < new Date()
  return (
    <div className="grid gap-4">
      <div className="flex flex-wrap items-center gap-2">
        <StateBadge state={compute.state} reason={compute.reason} />
        <span className="text-sm text-muted">{memberLook(compute.state).means}</span>
        <span className="ml-auto flex gap-2">
          {(['skip', 'rollback'] as const).map((control) => (
            <ControlButton
              key={control}
              rollout={rollout}
              control={control}
              target={{ compute_id: compute.compute_id }}
              refusal={computeRefusal(control, rollout, compute)}
              label={control === 'skip' ? `Skip ${compute.compute_id}` : `Roll back ${compute.compute_id}`}
            />
          ))}
        </span>
      </div>
      {late && <Notice tone="warn">The present step should have ended by {time(compute.deadline_at)}.</Notice>}
      {compute.reason && !compute.evidence && <Notice>{compute.reason}</Notice>}
      <Card title="What is known">
        <Facts rollout={rollout} compute={compute} />
      </Card>
      <Card title="Verdict" note="Figures of both windows, from Prometheus, kept with the rollout.">
        {compute.evidence ? (
          <>
            <Verdict evidence={compute.evidence} />
            <EvidenceTable evidence={compute.evidence} />
          </>
        ) : (
          <p className="text-muted">
            {compute.bake_seconds === 0
              ? 'Nothing is judged: this rollout was planned without windows.'
              : 'The verdict and the before/after table appear once both windows are measured.'}
          </p>
        )}
      </Card>
      {rollout.started_at && <Charts rollout={rollout} compute={compute} />}
    </div>
  )
}

/** One compute of a rollout: its verdict, and its charts around the switch with both windows shaded. */
export function RolloutComputeDrawer({
  rollout,
  computeId,
  onClose,
}: {
  rollout: Rollout
  computeId: string
  onClose: () => void
}) {
  const { data, error } = useQuery(rolloutComputeQuery(rollout.id, computeId))
  const title = (
    <>
      {data?.compute.project_name ?? 'Compute'}{' '}
      <Link
        to="/computes/$computeId"
        params={{ computeId }}
        className="font-mono text-sm font-normal text-accent underline"
      >
        {computeId}
      </Link>
    </>
  )
  return (
    <Drawer title={title} onClose={onClose}>
      {error ? (
        <Notice tone="bad">{errorText(error)}</Notice>
      ) : data ? (
        <Body rollout={rollout} compute={data.compute} />
      ) : (
        <Loading what="compute" />
      )}
    </Drawer>
  )
}
