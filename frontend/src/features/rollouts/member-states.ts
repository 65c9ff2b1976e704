import { stateText } from '~/shared/states'

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
