import type { RolloutBody, Selector, Strategy } from '~/api/types'
import { type Feature, FEATURES } from '~/features/fleet/compute-features'

/** One wave as it is being typed. */
export type WaveRow = { key: number; name: string; by: 'count' | 'percent'; amount: string; soak: string }

/** A freeze, when nothing begins: these hours of these weekdays (1 is Monday), or from one moment to another. All UTC. */
export type WeeklyFreeze = { kind: 'weekly'; key: number; weekdays: number[]; start: string; end: string; reason: string }
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

/** Seconds after the switch that are not measured, when nobody says otherwise. */
const SETTLE: Record<Feature, string> = { image_pushdown: '5', postgres_minor: '30' }

const wave = (key: number, name: string, by: WaveRow['by'], amount: string): WaveRow => ({ key, name, by, amount, soak: '' })

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
  baseline: '120',
  settle: SETTLE.image_pushdown,
  bake: '120',
  soak: '60',
  planApproval: false,
  approval: false,
  concurrent: '500',
  perCell: '',
  perOrg: '',
  failedPercent: '2',
  holdoutPercent: '0',
  includeSuspended: true,
  newComputes: true,
  maintenance: true,
  deadline: '600',
  freezes: [],
  p99Ratio: '3',
  p99Slack: '250',
  chainLength: '',
  imageShare: '2',
  imageThreshold: '',
  judgeBy: 'controls',
  tolerated: '1.25',
}

export type FieldErrors = Partial<Record<keyof PlanForm | `wave-${number}` | `freeze-${number}`, string>>

const GIB = 2 ** 30
const KIB = 2 ** 10

class Reader {
  readonly errors: FieldErrors = {}

  /** A number between `low` and `high`; undefined when the field is empty and may be, or wrong. */
  number(field: keyof FieldErrors, text: string, low: number, high: number, unit: string, required = false): number | undefined {
    const value = Number(text)
    if (text.trim() === '' && !required) return undefined
    if (text.trim() === '' || !Number.isFinite(value) || value < low || value > high) {
      this.errors[field] = `A number from ${String(low)} to ${String(high)}${unit && ` ${unit}`}.`
      return undefined
    }
    return value
  }

  span(low: keyof PlanForm, high: keyof PlanForm, form: PlanForm, unit: number, name: string): { min?: number; max?: number } | undefined {
    const min = this.number(low, String(form[low]), 0, 1e9, name)
    const max = this.number(high, String(form[high]), 0, 1e9, name)
    if (min !== undefined && max !== undefined && max < min) this.errors[high] = 'Not below the lower bound.'
    if (min === undefined && max === undefined) return undefined
    return { ...(min === undefined ? {} : { min: min * unit }), ...(max === undefined ? {} : { max: max * unit }) }
  }
}

/** `env=prod, team=shop` -> a tag map; undefined when there are none. */
function readTags(reader: Reader, text: string): Record<string, string> | undefined {
  const pairs = text.split(',').map((pair) => pair.trim()).filter(Boolean)
  const tags: Record<string, string> = {}
  for (const pair of pairs) {
    const at = pair.indexOf('=')
    if (at < 1) reader.errors.tags = `“${pair}” is not name=value.`
    else tags[pair.slice(0, at).trim()] = pair.slice(at + 1).trim()
  }
  return pairs.length > 0 ? tags : undefined
}

function readVersions(reader: Reader, text: string): number[] | undefined {
  const parts = text.split(/[\s,]+/).filter(Boolean)
  if (parts.some((part) => !/^\d+$/.test(part))) reader.errors.pgVersions = 'Major versions, such as 15, 17.'
  return parts.length > 0 ? parts.map(Number) : undefined
}

function readSelector(reader: Reader, form: PlanForm): Selector {
  const tags = readTags(reader, form.tags)
  const versions = readVersions(reader, form.pgVersions)
  const size = reader.span('sizeMin', 'sizeMax', form, GIB, 'GiB')
  const wal = reader.span('walMin', 'walMax', form, KIB, 'KiB/s')
  return {
    ...(form.regions.length > 0 ? { region_ids: form.regions } : {}),
    ...(form.cells.length > 0 ? { cells: form.cells } : {}),
    ...(form.orgs.length > 0 ? { org_ids: form.orgs.map((org) => org.id) } : {}),
    ...(form.projects.length > 0 ? { project_ids: form.projects.map((project) => project.id) } : {}),
    ...(tags ? { tags } : {}),
    ...(versions ? { pg_versions: versions } : {}),
    ...(size ? { size_bytes: size } : {}),
    ...(wal ? { wal_bytes_per_second: wal } : {}),
  }
}

function readWaves(reader: Reader, rows: WaveRow[]): NonNullable<Strategy['waves']> {
  if (rows.length === 0) reader.errors.waves = 'At least one wave.'
  return rows.map((row) => {
    const field = `wave-${row.key}` as const
    const amount =
      row.by === 'count'
        ? reader.number(field, row.amount, 1, 1e6, 'computes', true)
        : reader.number(field, row.amount, 0.01, 100, 'per cent', true)
    const soak = reader.number(field, row.soak, 0, 604_800, 'seconds of soak')
    const name = row.name.trim()
    return {
      ...(row.by === 'count' ? { count: Math.round(amount ?? 1) } : { percent: amount ?? 100 }),
      ...(name ? { name } : {}),
      ...(soak === undefined ? {} : { soak_seconds: Math.round(soak) }),
    }
  })
}

/** What a field for date and time holds, `2026-03-01T08:00`, as a moment of UTC. */
const utc = (local: string) => new Date(`${local}Z`)

function readFreezes(reader: Reader, rows: FreezeRow[]) {
  return rows.map((row) => {
    const why = row.reason.trim() ? { reason: row.reason.trim() } : {}
    const field = `freeze-${row.key}` as const
    if (row.kind === 'weekly') {
      if (row.weekdays.length === 0) reader.errors[field] = 'Choose at least one day.'
      return { weekdays: row.weekdays, start_time: row.start, end_time: row.end, ...why }
    }
    const [from, to] = [utc(row.from), utc(row.to)]
    const known = !Number.isNaN(from.getTime()) && !Number.isNaN(to.getTime())
    if (!known) reader.errors[field] = 'Give the moment it begins and the moment it ends.'
    else if (to <= from) reader.errors[field] = 'It must end after it begins.'
    return { from: known ? from.toISOString() : row.from, to: known ? to.toISOString() : row.to, ...why }
  })
}

/** Another feature: its name, unless somebody has given the rollout one of their own, and as long to settle as it needs. */
export function chooseFeature(form: PlanForm, feature: Feature): Partial<PlanForm> {
  const { name, settle } = form
  return {
    feature,
    name: name === FEATURES[form.feature].name ? FEATURES[feature].name : name,
    settle: settle === SETTLE[form.feature] ? SETTLE[feature] : settle,
  }
}

/** Bounds that need no statistics, and how storage is set. */
function readBounds(reader: Reader, form: PlanForm): Partial<Strategy> {
  if (form.feature === 'postgres_minor') {
    return {
      max_p99_ratio: reader.number('p99Ratio', form.p99Ratio, 1, 100, 'times the baseline', true) ?? 3,
      p99_slack_seconds: (reader.number('p99Slack', form.p99Slack, 0, 60_000, 'milliseconds', true) ?? 0) / 1000,
    }
  }
  const chain = reader.number('chainLength', form.chainLength, 1, 1e6, 'deltas')
  const threshold = reader.number('imageThreshold', form.imageThreshold, 1, 100_000, 'deltas')
  return {
    max_p99_ratio: reader.number('p99Ratio', form.p99Ratio, 1, 100, 'times the baseline', true) ?? 3,
    p99_slack_seconds: (reader.number('p99Slack', form.p99Slack, 0, 60_000, 'milliseconds', true) ?? 0) / 1000,
    max_image_share: (reader.number('imageShare', form.imageShare, 0, 100, 'per cent', true) ?? 0) / 100,
    ...(chain === undefined ? {} : { max_chain_length: chain }),
    ...(threshold === undefined ? {} : { image_threshold: Math.round(threshold) }),
  }
}

/** What the form says to the API, and what is wrong with it; the body is only meant to be sent without errors. */
export function readForm(form: PlanForm): { body: RolloutBody; errors: FieldErrors } {
  const reader = new Reader()
  const whole = (field: keyof PlanForm, low: number, high: number, unit: string) => {
    const value = reader.number(field, String(form[field]), low, high, unit, true)
    return value === undefined ? low : Math.round(value)
  }
  const perCell = reader.number('perCell', form.perCell, 1, 10_000, 'computes')
  const perOrg = reader.number('perOrg', form.perOrg, 1, 10_000, 'computes')
  const strategy = {
    waves: readWaves(reader, form.waves),
    baseline_seconds: whole('baseline', 0, 86_400, 'seconds'),
    settle_seconds: whole('settle', 0, 600, 'seconds'),
    bake_seconds: whole('bake', 0, 86_400, 'seconds'),
    soak_seconds: whole('soak', 0, 604_800, 'seconds'),
    plan_approval_required: form.planApproval,
    approval_required: form.approval,
    max_concurrent: whole('concurrent', 1, 10_000, 'computes'),
    ...(perCell === undefined ? {} : { max_concurrent_per_cell: Math.round(perCell) }),
    ...(perOrg === undefined ? {} : { max_concurrent_per_org: Math.round(perOrg) }),
    max_failed_percent: reader.number('failedPercent', form.failedPercent, 0, 100, 'per cent', true) ?? 0,
    holdout_percent: reader.number('holdoutPercent', form.holdoutPercent, 0, 50, 'per cent', true) ?? 0,
    include_suspended: form.includeSuspended,
    new_computes: form.newComputes,
    freeze_windows: readFreezes(reader, form.freezes),
    respect_maintenance_windows: form.maintenance,
    step_deadline_seconds: whole('deadline', 10, 604_800, 'seconds'),
    judge_by: form.judgeBy,
    tolerated_ratio: reader.number('tolerated', form.tolerated, 1.05, 10, 'times the controls', true) ?? 1.25,
    ...readBounds(reader, form),
    ...(form.feature === 'postgres_minor' && form.target.trim() ? { target_version: form.target.trim() } : {}),
  }
  if (form.feature === 'postgres_minor' && form.target.trim() && !/^[1-9]\d*\.\d+$/.test(form.target.trim())) reader.errors.target = 'A minor, such as 15.20.'
  if (Number(form.bake) > 0 && Number(form.baseline) === 0) reader.errors.baseline = 'A bake is judged against a baseline: give one, or bake for 0 s.'
  if (form.name.trim() === '') reader.errors.name = 'A rollout needs a name that people will recognise.'
  return { body: { name: form.name.trim(), feature: form.feature, selector: readSelector(reader, form), strategy }, errors: reader.errors }
}

/** One line on who is chosen, for the closed section of the editor. */
export function selectorText(form: PlanForm): string {
  const parts = [
    form.regions.length > 0 && `region ${form.regions.join(', ')}`,
    form.cells.length > 0 && `cell ${form.cells.join(', ')}`,
    form.orgs.length > 0 && `of ${form.orgs.map((org) => org.name).join(', ')}`,
    form.projects.length > 0 && `${String(form.projects.length)} ${form.projects.length === 1 ? 'project' : 'projects'}`,
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
  return `${form.maintenance ? 'in maintenance windows' : 'at any hour'}, ${freezes === 0 ? 'no freeze' : freezes === 1 ? '1 freeze' : `${String(freezes)} freezes`}`
}

export function wavesText(form: PlanForm): string {
  return form.waves.map((row) => (row.by === 'percent' ? `${row.amount} %` : row.amount)).join(' → ')
}
