import type { Operation } from '~/api/types'
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

/** The API's names of operations, where they are not plain words. */
const OPERATIONS: Partial<Record<Operation['action'], string>> = {
  create_timeline: 'create project',
  apply_config: 'apply compute settings',
  apply_storage_config: 'apply history window',
  swap_binding_id: 'restore branch',
  detach_parent_branch: 'detach branch',
  replace_safekeeper: 'change safekeepers',
}

export function operationText({ action, branch_id }: Operation): string {
  if (action === 'delete_timeline') return branch_id ? 'delete branch' : 'delete project'
  return OPERATIONS[action] ?? stateText(action)
}

type MemberLook = { glyph: string; color: string; means: string }

/** Each state of a rollout's compute: a sign that reads without colour, a fill, and what it means. In order of events. */
const MEMBERS: Record<string, MemberLook> = {
  pending: { glyph: '·', color: '--line-strong', means: 'waits for its turn' },
  preflight: { glyph: 'c', color: '--accent', means: 'checked before anything is changed' },
  baseline: { glyph: 'b', color: '--accent', means: 'measured before the switch' },
  arming: { glyph: 'a', color: '--accent', means: 'made ready for the switch' },
  switching: { glyph: 's', color: '--accent', means: 'is being switched' },
  confirming: { glyph: 'w', color: '--accent', means: 'waits until the switch is seen wherever it must be' },
  baking: { glyph: '…', color: '--accent', means: 'switched, measured before its verdict' },
  deferred: { glyph: 'z', color: '--muted', means: 'suspended: switches when it starts next' },
  passed: { glyph: '✓', color: '--good', means: 'switched, with nothing against it' },
  inconclusive: { glyph: '?', color: '--warn', means: 'the measurement says too little: holds' },
  regressed: { glyph: '✗', color: '--bad', means: 'judged worse: has been switched back' },
  rolled_back: { glyph: '↩', color: '--muted', means: 'is again as it was before' },
  skipped: { glyph: '–', color: '--line-strong', means: 'left out' },
  failed: { glyph: '!', color: '--bad', means: 'a step could not be done' },
}

export const MEMBER_STATES: readonly string[] = Object.keys(MEMBERS)

export function memberLook(state: string): MemberLook {
  return MEMBERS[state] ?? { glyph: '…', color: '--muted', means: stateText(state) }
}
