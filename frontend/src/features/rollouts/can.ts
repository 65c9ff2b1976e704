import type { Rollout, RolloutCompute, RolloutWave } from '~/api/types'
import { featureOf } from '~/features/fleet/compute-features'
import { computes } from '~/lib/format'

import type { RolloutControl, Target } from './queries'

const OVER = new Set(['completed', 'aborted', 'rolled_back', 'failed'])
const NOT_YET_SWITCHED = new Set(['pending', 'preflight', 'baseline', 'arming', 'deferred'])

export function isOver(rollout: Rollout): boolean {
  return OVER.has(rollout.status)
}

/** Why a control does nothing useful now, or null when it does. The server decides; this explains. */
export function controlRefusal(control: RolloutControl, rollout: Rollout): string | null {
  const status = rollout.status.replaceAll('_', ' ')
  switch (control) {
    case 'pause':
      return ['running', 'held', 'planned'].includes(rollout.status) ? null : `A ${status} rollout cannot be paused.`
    case 'resume':
      return rollout.status === 'paused' ? null : 'Only a paused rollout can be resumed.'
    case 'approve':
      return rollout.status === 'held' || rollout.status === 'planned' ? null : 'Nothing waits for approval.'
    case 'skip':
      return isOver(rollout) ? `The rollout is ${status}.` : null
    case 'abort':
      return isOver(rollout) || ['aborting', 'rolling_back'].includes(rollout.status)
        ? `The rollout is ${status}.`
        : null
    case 'rollback':
      if (rollout.status === 'rolling_back') return 'It is being rolled back already.'
      return rollout.switched_total > 0 ? null : 'No compute is switched by this rollout.'
  }
}

/** The same for one compute. */
export function computeRefusal(
  control: 'skip' | 'rollback',
  rollout: Rollout,
  compute: RolloutCompute,
): string | null {
  if (control === 'skip') {
    return (
      controlRefusal('skip', rollout) ??
      (NOT_YET_SWITCHED.has(compute.state) ? null : 'It has been switched or left out already.')
    )
  }
  if (compute.rolled_back_at) return 'It has gone back already.'
  return compute.switched_at ? null : 'It has not been switched.'
}

/** The same for one wave. */
export function waveRefusal(control: 'skip' | 'rollback', rollout: Rollout, wave: RolloutWave): string | null {
  const of = (...states: string[]) =>
    states.reduce((sum, state) => sum + (wave.counts[state as keyof typeof wave.counts] ?? 0), 0)
  if (control === 'skip') {
    return (
      controlRefusal('skip', rollout) ?? (of(...NOT_YET_SWITCHED) > 0 ? null : 'Nobody of this wave waits any more.')
    )
  }
  return of('passed', 'baking', 'confirming', 'switching', 'inconclusive') > 0
    ? null
    : 'Nobody of this wave is switched.'
}

function rollbackSays(rollout: Rollout, target: Target): string {
  const { one, many, how } = featureOf(rollout.feature).back
  if (target === null) {
    const after = isOver(rollout) ? '' : ' The rollout ends with that.'
    return `${computes(rollout.switched_total)} that this rollout switched ${many}, ${how}${after}`
  }
  if ('wave' in target) {
    const name = rollout.waves.find((wave) => wave.index === target.wave)?.name ?? String(target.wave)
    return `Every switched compute of wave “${name}” ${one}, ${how} The other waves stay as they are.`
  }
  return `${target.compute_id} ${one}, ${how} The rollout goes on without it.`
}

function skipSays(rollout: Rollout, target: Target): string {
  if (target !== null && 'compute_id' in target)
    return `${target.compute_id} is left out of this rollout and ${featureOf(rollout.feature).keeps}.`
  const wave = rollout.waves.find((each) => target !== null && 'wave' in target && each.index === target.wave)
  return `Everyone of wave “${wave?.name ?? ''}” who has not been switched is left out. Who has been switched stays switched.`
}

function approveSays(rollout: Rollout): string {
  const next = rollout.waves.find((wave) => wave.index > (rollout.current_wave ?? -1) && wave.state === 'pending')
  const opens = next
    ? `Wave “${next.name}” begins: ${computes(next.computes_total)}.`
    : 'The rollout goes on to its end.'
  const why = rollout.status_reason ? ` It is held because: ${rollout.status_reason}` : ''
  return `${opens}${why}`
}

/** What will happen when a control is used, in words, for the dialog that asks. */
export function consequence(control: RolloutControl, rollout: Rollout, target: Target): string {
  const counts = rollout.counts as Partial<Record<string, number>>
  switch (control) {
    case 'pause':
      return 'Nothing new is switched. Computes that have been switched bake on and are judged.'
    case 'resume':
      return 'The rollout goes on from where it was.'
    case 'approve':
      return approveSays(rollout)
    case 'skip':
      return skipSays(rollout, target)
    case 'abort':
      return (
        'Nothing more is switched. Switched computes without a passed verdict go back; ' +
        `${computes(counts.passed ?? 0)} that passed stay switched. An aborted rollout cannot be resumed.`
      )
    case 'rollback':
      return rollbackSays(rollout, target)
  }
}
