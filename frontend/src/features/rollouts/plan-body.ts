import * as z from 'zod/mini'

import { issueText } from '~/api/bounds'
import { zRolloutCreateRequest, zSpan, zWaveSpec } from '~/api/generated/zod/zod.gen'
import type { RolloutBody, Selector, Strategy } from '~/api/types'
import { type NumberText, numberText, readNumber } from '~/shared/number-text'

import { type FieldErrors, type FreezeRow, NUMBERS, type PlanForm, type WaveRow } from './plan-form'

type Field = keyof FieldErrors

const WAVE = {
  count: numberText(zWaveSpec.shape.count, 'computes', { required: true }),
  percent: numberText(zWaveSpec.shape.percent, 'per cent', { required: true }),
  soak: numberText(zWaveSpec.shape.soak_seconds, 'seconds of soak'),
}
const GIB = numberText(zSpan.shape.min, 'GiB', { per: 1 / 2 ** 30 })
const KIB = numberText(zSpan.shape.min, 'KiB/s', { per: 1 / 2 ** 10 })

/** Reads fields and keeps what is wrong with them. */
class Reader {
  readonly errors: FieldErrors = {}

  /** As the API takes it; undefined where the field is empty and may be, or wrong. */
  number(field: Field, text: string, of: NumberText): number | undefined {
    const read = readNumber(text, of)
    if ('value' in read) return read.value
    this.errors[field] = read.error
    return undefined
  }

  span(
    low: keyof PlanForm,
    high: keyof PlanForm,
    form: PlanForm,
    of: NumberText,
  ): { min?: number; max?: number } | undefined {
    const min = this.number(low, String(form[low]), of)
    const max = this.number(high, String(form[high]), of)
    if (min !== undefined && max !== undefined && max < min) this.errors[high] = 'Not below the lower bound.'
    return min === undefined && max === undefined ? undefined : said({ min, max })
  }
}

/** Without what is undefined. */
function said<Fields extends object>(fields: Fields): { [Key in keyof Fields]?: Exclude<Fields[Key], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as never
}

/** `env=prod, team=shop` -> a tag map; undefined when there are none. */
function readTags(reader: Reader, text: string): Record<string, string> | undefined {
  const pairs = text
    .split(',')
    .map((pair) => pair.trim())
    .filter(Boolean)
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

const some = <Item>(items: Item[]): Item[] | undefined => (items.length > 0 ? items : undefined)

function readSelector(reader: Reader, form: PlanForm): Selector {
  return said({
    region_ids: some(form.regions),
    cells: some(form.cells),
    org_ids: some(form.orgs.map((org) => org.id)),
    project_ids: some(form.projects.map((project) => project.id)),
    tags: readTags(reader, form.tags),
    pg_versions: readVersions(reader, form.pgVersions),
    size_bytes: reader.span('sizeMin', 'sizeMax', form, GIB),
    wal_bytes_per_second: reader.span('walMin', 'walMax', form, KIB),
  })
}

function readWaves(reader: Reader, rows: WaveRow[]): NonNullable<Strategy['waves']> {
  if (rows.length === 0) reader.errors.waves = 'At least one wave.'
  return rows.map((row) => {
    const field = `wave-${row.key}` as const
    const amount = reader.number(field, row.amount, WAVE[row.by])
    const soak = reader.number(field, row.soak, WAVE.soak)
    return said({ [row.by]: amount, name: row.name.trim() || undefined, soak_seconds: soak })
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

/** Fields that only one feature knows. */
function readOwn(reader: Reader, form: PlanForm): Strategy {
  if (form.feature === 'postgres_minor') {
    return said({ target_version: form.target.trim() || undefined })
  }
  return said({
    max_image_share: reader.number('imageShare', form.imageShare, NUMBERS.imageShare),
    max_chain_length: reader.number('chainLength', form.chainLength, NUMBERS.chainLength),
    image_threshold: reader.number('imageThreshold', form.imageThreshold, NUMBERS.imageThreshold),
  })
}

function readStrategy(reader: Reader, form: PlanForm): Strategy {
  const number = (field: keyof typeof NUMBERS) => reader.number(field, form[field], NUMBERS[field])
  return said({
    waves: readWaves(reader, form.waves),
    baseline_seconds: number('baseline'),
    settle_seconds: number('settle'),
    bake_seconds: number('bake'),
    soak_seconds: number('soak'),
    plan_approval_required: form.planApproval,
    approval_required: form.approval,
    max_concurrent: number('concurrent'),
    max_concurrent_per_cell: number('perCell'),
    max_concurrent_per_org: number('perOrg'),
    max_failed_percent: number('failedPercent'),
    holdout_percent: number('holdoutPercent'),
    include_suspended: form.includeSuspended,
    new_computes: form.newComputes,
    freeze_windows: readFreezes(reader, form.freezes),
    respect_maintenance_windows: form.maintenance,
    step_deadline_seconds: number('deadline'),
    judge_by: form.judgeBy,
    tolerated_ratio: number('tolerated'),
    max_p99_ratio: number('p99Ratio'),
    p99_slack_seconds: number('p99Slack'),
    ...readOwn(reader, form),
  })
}

/** The field of the editor that a place in the body comes from; undefined where there is none to be marked. */
function fieldOf(form: PlanForm, [part, name, index]: PropertyKey[]): Field | undefined {
  if (part === 'name') return 'name'
  const row = (rows: { key: number }[], what: 'wave' | 'freeze', all: Field): Field => {
    const key = rows[Number(index)]?.key
    return key === undefined ? all : `${what}-${key}`
  }
  if (name === 'waves') return row(form.waves, 'wave', 'waves')
  if (name === 'freeze_windows') return row(form.freezes, 'freeze', 'freezes')
  const fields: Record<string, Field> = {
    target_version: 'target',
    tags: 'tags',
    pg_versions: 'pgVersions',
    org_ids: 'orgs',
    project_ids: 'projects',
  }
  return fields[String(name)]
}

/** What is wrong with which of the editor's fields, by their places in the form. */
export function marks(form: PlanForm, errors: FieldErrors) {
  const { waves, freezes } = form
  return {
    ...errors,
    ...Object.fromEntries(waves.map((row, index) => [`waves[${String(index)}].amount`, errors[`wave-${row.key}`]])),
    ...Object.fromEntries(
      freezes.map((row, index) => [
        `freezes[${String(index)}].${row.kind === 'weekly' ? 'weekdays' : 'to'}`,
        errors[`freeze-${row.key}`],
      ]),
    ),
  } as Partial<Record<keyof PlanForm, string>>
}

/** What in particular is wrong where the generated schemas say only that something is. */
const SAYS: FieldErrors = { target: 'A minor, such as 15.20.' }

/** What the form says to the API, and what is wrong with it; the body is only meant to be sent without errors. */
export function readForm(form: PlanForm): { body: RolloutBody; errors: FieldErrors } {
  const reader = new Reader()
  const body: RolloutBody = {
    name: form.name.trim(),
    feature: form.feature,
    selector: readSelector(reader, form),
    strategy: readStrategy(reader, form),
  }
  const { errors } = reader
  if (Number(form.bake) > 0 && Number(form.baseline) === 0)
    errors.baseline = 'A bake is judged against a baseline: give one, or bake for 0 s.'
  if (form.name.trim() === '') errors.name = 'A rollout needs a name that people will recognise.'
  for (const issue of z.safeParse(zRolloutCreateRequest, body).error?.issues ?? []) {
    const field = fieldOf(form, issue.path)
    if (field) errors[field] ??= SAYS[field] ?? issueText(issue)
  }
  return { body, errors }
}
