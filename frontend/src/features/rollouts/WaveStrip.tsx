import { clsx } from 'clsx'

import type { Rollout, RolloutWave } from '~/api/types'
import { count, duration, time } from '~/lib/format'
import { StateBadge } from '~/shared/StateBadge'
import { stateText } from '~/shared/states'
import { StateBar } from '~/ui/StateBar'

import { waveRefusal } from './can'
import { memberLook } from './member-states'
import { ControlButton } from './RolloutControls'

/** What is done first, what waits last, so that a bar fills from the left. */
const BAR_ORDER = [
  'passed',
  'inconclusive',
  'regressed',
  'failed',
  'rolled_back',
  'baking',
  'confirming',
  'switching',
  'arming',
  'baseline',
  'preflight',
  'deferred',
  'skipped',
  'pending',
]

export function stateShares(counts: Partial<Record<string, number>>) {
  return BAR_ORDER.map((state) => ({
    key: state,
    label: stateText(state),
    count: counts[state] ?? 0,
    color: memberLook(state).color,
  }))
}

/** What the wave is at, in a few words. */
function waveText(wave: RolloutWave): string {
  if (wave.state === 'soaking' && wave.soak_until) return `soaks until ${time(wave.soak_until)}`
  if (wave.finished_at) return `ended ${time(wave.finished_at)}`
  if (wave.started_at) return `began ${time(wave.started_at)}`
  return wave.soak_seconds > 0 ? `then watched for ${duration(wave.soak_seconds)}` : 'no soak after it'
}

function Wave({ rollout, wave }: { rollout: Rollout; wave: RolloutWave }) {
  const current = rollout.current_wave === wave.index
  const counts = wave.counts as Partial<Record<string, number>>
  const actions = (['skip', 'rollback'] as const).filter((control) => waveRefusal(control, rollout, wave) === null)
  return (
    <li
      aria-current={current ? 'step' : undefined}
      className={clsx('flex flex-col rounded-lg border bg-panel p-3', current ? 'border-accent' : 'border-line')}
    >
      <div className="mb-2 flex items-center justify-between gap-2">
        <span className="font-medium">{wave.name}</span>
        <StateBadge state={wave.state} reason={wave.reason} />
      </div>
      <StateBar label={`Wave ${wave.name}`} shares={stateShares(counts)} />
      <p className="tabular mt-1.5 text-xs text-muted">
        {count(counts.passed ?? 0)} of {count(wave.computes_total)} passed · {waveText(wave)}
      </p>
      {wave.reason && (
        <p className="mt-1 line-clamp-4 text-xs" title={wave.reason}>
          {wave.reason}
        </p>
      )}
      {actions.length > 0 && (
        <div className="mt-auto flex gap-2 pt-2">
          {actions.map((control) => (
            <ControlButton
              key={control}
              rollout={rollout}
              control={control}
              target={{ wave: wave.index }}
              refusal={null}
              calm
              label={control === 'skip' ? `Skip the rest of wave ${wave.name}` : `Roll back wave ${wave.name}`}
            />
          ))}
        </div>
      )}
    </li>
  )
}

/** The waves left to right as they will happen, each with how far its computes are. */
export function WaveStrip({ rollout }: { rollout: Rollout }) {
  return (
    <ol aria-label="Waves" className="grid gap-3 sm:grid-cols-[repeat(auto-fill,minmax(14rem,1fr))]">
      {rollout.waves.map((wave) => (
        <Wave key={wave.index} rollout={rollout} wave={wave} />
      ))}
    </ol>
  )
}
