import { useStore } from '@tanstack/react-form'
import { Plus } from 'lucide-react'

import { errorOf, withForm } from '~/shared/form'
import { Button } from '~/ui/Button'
import { Checkbox } from '~/ui/Field'

import { DEFAULT_FORM, type FreezeRow, LONGEST, type SingleFreeze, type WeeklyFreeze } from './plan-form'
import { nextKey, toggled } from './PlanFields'

const DAYS = ['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun']
const DAY_MS = 86_400_000

type DaysProps = { chosen: number[]; error: string | undefined; onChoose: (chosen: number[]) => void }

function DaysField({ chosen, error, onChoose }: DaysProps) {
  return (
    <>
      <div className="flex flex-wrap gap-x-3">
        {DAYS.map((day, at) => (
          <Checkbox
            key={day}
            label={day}
            checked={chosen.includes(at + 1)}
            onChange={(on) => {
              onChoose(toggled(chosen, at + 1, on).sort((a, b) => a - b))
            }}
          />
        ))}
      </div>
      {error && (
        <p role="alert" className="mb-1 text-xs text-bad">
          {error}
        </p>
      )}
    </>
  )
}

/** What a field for date and time takes: `2026-03-01T08:00`. */
const local = (unixMs: number) => new Date(unixMs).toISOString().slice(0, 16)

const WEEKLY: Omit<WeeklyFreeze, 'key'> = {
  kind: 'weekly',
  weekdays: [6, 7],
  start: '00:00',
  end: '00:00',
  reason: '',
}
const once = (now: number): Omit<SingleFreeze, 'key'> => ({
  kind: 'once',
  from: local(now),
  to: local(now + DAY_MS),
  reason: '',
})

/** When one freeze holds, which of the two kinds it is. */
const FreezeHours = withForm({
  defaultValues: DEFAULT_FORM,
  props: { index: 0, kind: 'weekly' as FreezeRow['kind'] },
  render: function FreezeHours({ form, index, kind }) {
    if (kind === 'weekly') {
      return (
        <>
          <form.Field name={`freezes[${index}].weekdays`}>
            {(field) => <DaysField chosen={field.state.value} error={errorOf(field)} onChoose={field.handleChange} />}
          </form.Field>
          <div className="mt-2 grid grid-cols-2 gap-x-3 [&>div]:mb-1">
            <form.AppField name={`freezes[${index}].start`}>
              {(field) => <field.Text label="From" type="time" required />}
            </form.AppField>
            <form.AppField name={`freezes[${index}].end`}>
              {(field) => <field.Text label="To" type="time" required />}
            </form.AppField>
          </div>
        </>
      )
    }
    return (
      <div className="grid gap-x-3 [&>div]:mb-1">
        <form.AppField name={`freezes[${index}].from`}>
          {(field) => <field.Text label="From" type="datetime-local" required />}
        </form.AppField>
        <form.AppField name={`freezes[${index}].to`}>
          {(field) => <field.Text label="To" type="datetime-local" required />}
        </form.AppField>
      </div>
    )
  },
})

export const FreezeFields = withForm({
  defaultValues: DEFAULT_FORM,
  render: function FreezeFields({ form }) {
    return (
      <form.Field name="freezes" mode="array">
        {(freezes) => (
          <div>
            <form.AppField name="maintenance">
              {(field) => <field.Check label="Keep to projects’ maintenance windows" />}
            </form.AppField>
            {freezes.state.value.map((row, index) => (
              <fieldset key={row.key} className="my-2 rounded-md border border-line p-2">
                <legend className="px-1 text-xs text-muted">
                  Freeze {index + 1}: nothing begins{' '}
                  {row.kind === 'weekly'
                    ? 'in these hours (UTC), every week; to 00:00 is to midnight'
                    : 'from then to then (UTC)'}
                </legend>
                <FreezeHours form={form} index={index} kind={row.kind} />
                <form.AppField name={`freezes[${index}].reason`}>
                  {(field) => <field.Text label="Why" maxLength={LONGEST.reason} />}
                </form.AppField>
                <Button
                  variant="quiet"
                  onClick={() => {
                    freezes.removeValue(index)
                  }}
                >
                  Remove freeze {index + 1}
                </Button>
              </fieldset>
            ))}
            <div className="flex flex-wrap gap-2">
              <Button
                onClick={() => {
                  freezes.pushValue({ ...WEEKLY, key: nextKey(freezes.state.value) })
                }}
              >
                <Plus aria-hidden size={14} /> Weekly freeze
              </Button>
              <Button
                onClick={() => {
                  freezes.pushValue({ ...once(Date.now()), key: nextKey(freezes.state.value) })
                }}
              >
                <Plus aria-hidden size={14} /> Freeze once
              </Button>
            </div>
          </div>
        )}
      </form.Field>
    )
  },
})

export const CareFields = withForm({
  defaultValues: DEFAULT_FORM,
  render: function CareFields({ form }) {
    const feature = useStore(form.store, (state) => state.values.feature)
    return (
      <>
        <div className="grid grid-cols-2 gap-x-3">
          <form.AppField name="concurrent">
            {(field) => (
              <field.Text label="At once, in all" inputMode="decimal" hint="computes between baseline and verdict" />
            )}
          </form.AppField>
          <form.AppField name="perCell">
            {(field) => <field.Text label="At once, a cell" inputMode="decimal" placeholder="no cap" />}
          </form.AppField>
          <form.AppField name="perOrg">
            {(field) => <field.Text label="At once, an organisation" inputMode="decimal" placeholder="no cap" />}
          </form.AppField>
          <form.AppField name="failedPercent">
            {(field) => (
              <field.Text label="Stop a wave above, % bad" inputMode="decimal" hint="regressed or failed" />
            )}
          </form.AppField>
          <form.AppField name="holdoutPercent">
            {(field) => (
              <field.Text label="Standing holdout, %" inputMode="decimal" hint="never switched: controls" />
            )}
          </form.AppField>
          <form.AppField name="deadline">
            {(field) => (
              <field.Text label="Alert a person after, s" inputMode="decimal" hint="beyond a step’s window" />
            )}
          </form.AppField>
        </div>
        <form.AppField name="includeSuspended">
          {(field) => <field.Check label="Take suspended computes too: they switch at their next start" />}
        </form.AppField>
        {feature === 'image_pushdown' && (
          <form.AppField name="newComputes">
            {(field) => <field.Check label="Computes made later start switched" />}
          </form.AppField>
        )}
      </>
    )
  },
})

export const BOUND_FIELDS = ['p99Ratio', 'p99Slack', 'chainLength', 'imageShare', 'imageThreshold'] as const

/** What ends a bake at once, however little traffic there was; and when storage makes images. */
export const BoundFields = withForm({
  defaultValues: DEFAULT_FORM,
  render: function BoundFields({ form }) {
    const feature = useStore(form.store, (state) => state.values.feature)
    return (
      <div className="grid grid-cols-2 gap-x-3">
        <form.AppField name="p99Ratio">
          {(field) => (
            <field.Text label="p99 ceiling, × baseline" inputMode="decimal" hint="and by the slack as well" />
          )}
        </form.AppField>
        <form.AppField name="p99Slack">
          {(field) => (
            <field.Text label="p99 slack, ms" inputMode="decimal" hint="less than this is never a regression" />
          )}
        </form.AppField>
        {feature === 'image_pushdown' && (
          <>
            <form.AppField name="chainLength">
              {(field) => (
                <field.Text
                  label="Chain length p99, deltas"
                  inputMode="decimal"
                  placeholder="no bound"
                  hint="deltas redone for a page that is read"
                />
              )}
            </form.AppField>
            <form.AppField name="imageShare">
              {(field) => (
                <field.Text
                  label="Images left, % of WAL"
                  inputMode="decimal"
                  hint="more means the switch did not hold"
                />
              )}
            </form.AppField>
            <form.AppField name="imageThreshold">
              {(field) => (
                <field.Text
                  label="Image threshold, deltas"
                  inputMode="decimal"
                  placeholder="storage’s own"
                  hint="a page’s deltas before storage makes its image"
                />
              )}
            </form.AppField>
          </>
        )}
      </div>
    )
  },
})
