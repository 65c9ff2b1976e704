import * as z from 'zod/mini'

import { longest } from '~/api/bounds'
import { zFreezeSpan, zRolloutCreateRequest, zStrategy, zWaveSpec } from '~/api/generated/zod/zod.gen'
import type { Strategy } from '~/api/types'
import { type Feature, FEATURES } from '~/features/fleet/compute-features'
import { initialText, numberText } from '~/shared/number-text'

/** One wave as it is being typed. */
export type WaveRow = { key: number; name: string; by: 'count' | 'percent'; amount: string; soak: string }

/** A freeze, when nothing begins: these hours of these weekdays (1 is Monday), or from one moment to another. All UTC. */
export type WeeklyFreeze = {
  kind: 'weekly'
  key: number
  weekdays: number[]
  start: string
  end: string
  reason: string
}
export type SingleFreeze = { kind: 'once'; key: number; from: string; to: string; reason: string }
export type FreezeRow = WeeklyFreeze | SingleFreeze

/** Something that is chosen by its id and shown by its name. */
export type Named = { id: string; name: string }

/** The plan editor's fields as typed; numbers stay text until they are sent, so that typing is never corrected midway. */
export type PlanForm = {
  name: string
  feature: Feature
  /** Of a rollout of a minor; empty is the newest there is. */
  target: string
  regions: string[]
  cells: string[]
  orgs: Named[]
  projects: Named[]
  tags: string
  pgVersions: string
  sizeMin: string
  sizeMax: string
  walMin: string
  walMax: string
  waves: WaveRow[]
  baseline: string
  settle: string
  bake: string
  soak: string
  planApproval: boolean
  approval: boolean
  concurrent: string
  perCell: string
  perOrg: string
  failedPercent: string
  holdoutPercent: string
  includeSuspended: boolean
  newComputes: boolean
  maintenance: boolean
  deadline: string
  freezes: FreezeRow[]
  p99Ratio: string
  p99Slack: string
  chainLength: string
  imageShare: string
  imageThreshold: string
  judgeBy: NonNullable<Strategy['judge_by']>
  tolerated: string
}

const STRATEGY = zStrategy.shape
/** A strategy of which nothing is said, as the API takes it. */
const SAID = z.parse(zStrategy, {})

/** Each number of the editor with its bounds, which are the API's, and the unit in which it is typed. */
export const NUMBERS = {
  baseline: numberText(STRATEGY.baseline_seconds, 'seconds'),
  settle: numberText(STRATEGY.settle_seconds, 'seconds'),
  bake: numberText(STRATEGY.bake_seconds, 'seconds'),
  soak: numberText(STRATEGY.soak_seconds, 'seconds'),
  concurrent: numberText(STRATEGY.max_concurrent, 'computes'),
  perCell: numberText(STRATEGY.max_concurrent_per_cell, 'computes'),
  perOrg: numberText(STRATEGY.max_concurrent_per_org, 'computes'),
  failedPercent: numberText(STRATEGY.max_failed_percent, 'per cent'),
  holdoutPercent: numberText(STRATEGY.holdout_percent, 'per cent'),
  deadline: numberText(STRATEGY.step_deadline_seconds, 'seconds'),
  tolerated: numberText(STRATEGY.tolerated_ratio, 'times the controls'),
  p99Ratio: numberText(STRATEGY.max_p99_ratio, 'times the baseline'),
  p99Slack: numberText(STRATEGY.p99_slack_seconds, 'milliseconds', { per: 1000 }),
  chainLength: numberText(STRATEGY.max_chain_length, 'deltas'),
  imageShare: numberText(STRATEGY.max_image_share, 'per cent', { per: 100 }),
  imageThreshold: numberText(STRATEGY.image_threshold, 'deltas'),
} as const

/** Characters that names and reasons may have. */
export const LONGEST = {
  name: longest(zRolloutCreateRequest.shape.name),
  wave: longest(zWaveSpec.shape.name),
  reason: longest(zFreezeSpan.shape.reason),
}

/** Seconds after the switch that are not measured, when nobody says otherwise. */
const SETTLE: Record<Feature, string> = { image_pushdown: initialText(NUMBERS.settle), postgres_minor: '30' }

const wave = (key: number, name: string, by: WaveRow['by'], amount: string): WaveRow => ({
  key,
  name,
  by,
  amount,
  soak: '',
})

/** A careful rollout of any fleet: what the server does when nothing is said. */
export const DEFAULT_FORM: PlanForm = {
  name: FEATURES.image_pushdown.name,
  feature: 'image_pushdown',
  target: '',
  regions: [],
  cells: [],
  orgs: [],
  projects: [],
  tags: '',
  pgVersions: '',
  sizeMin: '',
  sizeMax: '',
  walMin: '',
  walMax: '',
  waves: [
    wave(1, 'canary', 'count', '1'),
    wave(2, '1 %', 'percent', '1'),
    wave(3, '5 %', 'percent', '5'),
    wave(4, '25 %', 'percent', '25'),
    wave(5, 'everyone', 'percent', '100'),
  ],
  baseline: initialText(NUMBERS.baseline),
  settle: SETTLE.image_pushdown,
  bake: initialText(NUMBERS.bake),
  soak: initialText(NUMBERS.soak),
  planApproval: SAID.plan_approval_required,
  approval: SAID.approval_required,
  concurrent: initialText(NUMBERS.concurrent),
  perCell: '',
  perOrg: '',
  failedPercent: initialText(NUMBERS.failedPercent),
  holdoutPercent: initialText(NUMBERS.holdoutPercent),
  includeSuspended: SAID.include_suspended,
  newComputes: SAID.new_computes,
  maintenance: SAID.respect_maintenance_windows,
  deadline: initialText(NUMBERS.deadline),
  freezes: [],
  p99Ratio: initialText(NUMBERS.p99Ratio),
  p99Slack: initialText(NUMBERS.p99Slack),
  chainLength: '',
  imageShare: initialText(NUMBERS.imageShare),
  imageThreshold: '',
  judgeBy: 'controls',
  tolerated: initialText(NUMBERS.tolerated),
}

export type FieldErrors = Partial<Record<keyof PlanForm | `wave-${number}` | `freeze-${number}`, string>>

/** Another feature: its name, unless somebody has given the rollout one of their own, and as long to settle as it needs. */
export function chooseFeature(form: PlanForm, feature: Feature): Pick<PlanForm, 'feature' | 'name' | 'settle'> {
  const { name, settle } = form
  return {
    feature,
    name: name === FEATURES[form.feature].name ? FEATURES[feature].name : name,
    settle: settle === SETTLE[form.feature] ? SETTLE[feature] : settle,
  }
}

/** One line on who is chosen, for the closed section of the editor. */
export function selectorText(form: PlanForm): string {
  const parts = [
    form.regions.length > 0 && `region ${form.regions.join(', ')}`,
    form.cells.length > 0 && `cell ${form.cells.join(', ')}`,
    form.orgs.length > 0 && `of ${form.orgs.map((org) => org.name).join(', ')}`,
    form.projects.length > 0 &&
      `${String(form.projects.length)} ${form.projects.length === 1 ? 'project' : 'projects'}`,
    form.tags.trim() && `tagged ${form.tags.trim()}`,
    form.pgVersions.trim() && `Postgres ${form.pgVersions.trim()}`,
    (form.sizeMin || form.sizeMax) && `size ${form.sizeMin || '0'} to ${form.sizeMax || '∞'} GiB`,
    (form.walMin || form.walMax) && `WAL ${form.walMin || '0'} to ${form.walMax || '∞'} KiB/s`,
  ].filter(Boolean)
  return parts.length > 0 ? parts.join(' · ') : 'every compute'
}

/** When the rollout may begin something, in one line. */
export function whenText(form: PlanForm): string {
  const freezes = form.freezes.length
  const hours = form.maintenance ? 'in maintenance windows' : 'at any hour'
  return `${hours}, ${freezes === 0 ? 'no' : String(freezes)} ${freezes > 1 ? 'freezes' : 'freeze'}`
}

export function wavesText(form: PlanForm): string {
  return form.waves.map((row) => (row.by === 'percent' ? `${row.amount} %` : row.amount)).join(' → ')
}
