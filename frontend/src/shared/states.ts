import type { Tone } from '~/ui/Badge'

/** How each state of a thing reads at a glance; unknown states stay visible, in neutral. */
const TONES: Record<string, Tone> = {
  active: 'good',
  ready: 'good',
  finished: 'good',
  passed: 'good',
  completed: 'good',
  running: 'accent',
  starting: 'accent',
  suspending: 'accent',
  scheduling: 'accent',
  preflight: 'accent',
  baseline: 'accent',
  arming: 'accent',
  switching: 'accent',
  confirming: 'accent',
  baking: 'accent',
  soaking: 'accent',
  rolling_back: 'warn',
  aborting: 'warn',
  cancelling: 'warn',
  cancelled: 'warn',
  paused: 'warn',
  held: 'warn',
  inconclusive: 'warn',
  failed: 'bad',
  error: 'bad',
  fenced: 'bad',
  regressed: 'bad',
}

export function stateTone(state: string): Tone {
  return TONES[state] ?? 'neutral'
}

export function stateText(state: string): string {
  return state.replaceAll('_', ' ')
}
