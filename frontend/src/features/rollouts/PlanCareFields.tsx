import { Plus } from 'lucide-react'

import { Button } from '~/ui/Button'
import { Checkbox, TextField } from '~/ui/Field'

import { type FreezeRow, LONGEST, type PlanForm, type SingleFreeze, type WeeklyFreeze } from './plan-form'
import { type FieldsProps, toggled } from './PlanFields'

const DAYS = ['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun']
const DAY_MS = 86_400_000

type Change<Row> = (patch: Partial<Row>) => void

function WeeklyFields({ row, change }: { row: WeeklyFreeze; change: Change<WeeklyFreeze> }) {
  return (
    <>
      <div className="flex flex-wrap gap-x-3">
        {DAYS.map((day, at) => (
          <Checkbox key={day} label={day} checked={row.weekdays.includes(at + 1)} onChange={(on) => { change({ weekdays: toggled(row.weekdays, at + 1, on).sort((a, b) => a - b) }) }} />
        ))}
      </div>
      <div className="mt-2 grid grid-cols-2 gap-x-3 [&>div]:mb-1">
        <TextField label="From" type="time" required value={row.start} onChange={(event) => { change({ start: event.target.value }) }} />
        <TextField label="To" type="time" required value={row.end} onChange={(event) => { change({ end: event.target.value }) }} />
      </div>
    </>
  )
}

function SingleFields({ row, change }: { row: SingleFreeze; change: Change<SingleFreeze> }) {
  return (
    <div className="grid gap-x-3 [&>div]:mb-1">
      <TextField label="From" type="datetime-local" required value={row.from} onChange={(event) => { change({ from: event.target.value }) }} />
      <TextField label="To" type="datetime-local" required value={row.to} onChange={(event) => { change({ to: event.target.value }) }} />
    </div>
  )
}

/** What a field for date and time takes: `2026-03-01T08:00`. */
const local = (unixMs: number) => new Date(unixMs).toISOString().slice(0, 16)

export function FreezeFields({ form, errors, set }: FieldsProps) {
  const change = (key: number, patch: Partial<FreezeRow>) => { set({ freezes: form.freezes.map((row) => (row.key === key ? ({ ...row, ...patch } as FreezeRow) : row)) }) }
  const add = (kind: FreezeRow['kind']) => {
    const key = Math.max(0, ...form.freezes.map((row) => row.key)) + 1
    const row: FreezeRow =
      kind === 'weekly'
        ? { kind, key, weekdays: [6, 7], start: '00:00', end: '00:00', reason: '' }
        : { kind, key, from: local(Date.now()), to: local(Date.now() + DAY_MS), reason: '' }
    set({ freezes: [...form.freezes, row] })
  }
  return (
    <div>
      <Checkbox label="Keep to projects’ maintenance windows" checked={form.maintenance} onChange={(maintenance) => { set({ maintenance }) }} />
      {form.freezes.map((row, index) => (
        <fieldset key={row.key} className="my-2 rounded-md border border-line p-2">
          <legend className="px-1 text-xs text-muted">Freeze {index + 1}: nothing begins {row.kind === 'weekly' ? 'in these hours (UTC), every week; to 00:00 is to midnight' : 'from then to then (UTC)'}</legend>
          {row.kind === 'weekly' ? (
            <WeeklyFields row={row} change={(patch) => { change(row.key, patch) }} />
          ) : (
            <SingleFields row={row} change={(patch) => { change(row.key, patch) }} />
          )}
          {errors[`freeze-${row.key}`] && <p role="alert" className="mb-1 text-xs text-bad">{errors[`freeze-${row.key}`]}</p>}
          <TextField label="Why" value={row.reason} maxLength={LONGEST.reason} onChange={(event) => { change(row.key, { reason: event.target.value }) }} />
          <Button variant="quiet" onClick={() => { set({ freezes: form.freezes.filter((other) => other.key !== row.key) }) }}>Remove freeze {index + 1}</Button>
        </fieldset>
      ))}
      <div className="flex flex-wrap gap-2">
        <Button onClick={() => { add('weekly') }}><Plus aria-hidden size={14} /> Weekly freeze</Button>
        <Button onClick={() => { add('once') }}><Plus aria-hidden size={14} /> Freeze once</Button>
      </div>
    </div>
  )
}

/** Fields of one line of text, with what is wrong beside them. */
function texts({ form, errors, set }: FieldsProps) {
  return (field: keyof PlanForm) => ({
    value: String(form[field]),
    error: errors[field],
    inputMode: 'decimal' as const,
    onChange: (event: { target: { value: string } }) => { set({ [field]: event.target.value }) },
  })
}

export function CareFields(props: FieldsProps) {
  const { form, set } = props
  const text = texts(props)
  return (
    <>
      <div className="grid grid-cols-2 gap-x-3">
        <TextField label="At once, in all" hint="computes between baseline and verdict" {...text('concurrent')} />
        <TextField label="At once, a cell" placeholder="no cap" {...text('perCell')} />
        <TextField label="At once, an organisation" placeholder="no cap" {...text('perOrg')} />
        <TextField label="Stop a wave above, % bad" hint="regressed or failed" {...text('failedPercent')} />
        <TextField label="Standing holdout, %" hint="never switched: controls" {...text('holdoutPercent')} />
        <TextField label="Alert a person after, s" hint="beyond a step’s window" {...text('deadline')} />
      </div>
      <Checkbox label="Take suspended computes too: they switch at their next start" checked={form.includeSuspended} onChange={(includeSuspended) => { set({ includeSuspended }) }} />
      {form.feature === 'image_pushdown' && <Checkbox label="Computes made later start switched" checked={form.newComputes} onChange={(newComputes) => { set({ newComputes }) }} />}
    </>
  )
}

export const BOUND_FIELDS = ['p99Ratio', 'p99Slack', 'chainLength', 'imageShare', 'imageThreshold'] as const

/** What ends a bake at once, however little traffic there was; and when storage makes images. */
export function BoundFields(props: FieldsProps) {
  const text = texts(props)
  return (
    <div className="grid grid-cols-2 gap-x-3">
      <TextField label="p99 ceiling, × baseline" hint="and by the slack as well" {...text('p99Ratio')} />
      <TextField label="p99 slack, ms" hint="less than this is never a regression" {...text('p99Slack')} />
      {props.form.feature === 'image_pushdown' && <>
      <TextField label="Chain length p99, deltas" placeholder="no bound" hint="deltas redone for a page that is read" {...text('chainLength')} />
      <TextField label="Images left, % of WAL" hint="more means the switch did not hold" {...text('imageShare')} />
      <TextField label="Image threshold, deltas" placeholder="storage’s own" hint="a page’s deltas before storage makes its image" {...text('imageThreshold')} />
      </>}
    </div>
  )
}
