import { useStore } from '@tanstack/react-form'

import type { BackupScheduleItem } from '~/api/types'
import { submits, useAppForm } from '~/shared/form'
import { Button } from '~/ui/Button'

import { WEEKDAYS } from './schedule-text'

type Frequency = BackupScheduleItem['frequency']

const DAY = 86_400
const KEPT_DAYS = ['1', '7', '14', '35'] as const
const HOURS = Array.from({ length: 24 }, (_, hour) => hour)
const DAYS_OF_MONTH = Array.from({ length: 31 }, (_, day) => day + 1)

/** An entry as the form's fields say it. */
export function entryOf(value: { frequency: string; hour: string; day: string; days: string }): BackupScheduleItem {
  const frequency = value.frequency as Frequency
  return {
    frequency,
    retention_seconds: Number(value.days) * DAY,
    ...(frequency === 'hourly' ? {} : { hour: Number(value.hour) }),
    ...(frequency === 'weekly' || frequency === 'monthly' ? { day: Number(value.day) } : {}),
  }
}

/** Adds an entry to a schedule. */
export function ScheduleForm({ busy, onAdd }: { busy: boolean; onAdd: (entry: BackupScheduleItem) => void }) {
  const form = useAppForm({
    defaultValues: { frequency: 'daily', hour: '3', day: '1', days: '7' },
    onSubmit: ({ value }) => {
      onAdd(entryOf(value))
    },
  })
  const frequency = useStore(form.store, (state) => state.values.frequency)
  return (
    <form onSubmit={submits(form)} className="mt-4 flex flex-wrap items-end gap-3 border-t border-line pt-4">
      <form.AppField
        name="frequency"
        listeners={{
          onChange: () => {
            form.setFieldValue('day', '1')
          },
        }}
      >
        {(field) => (
          <field.Select label="Take one">
            <option value="hourly">each hour</option>
            <option value="daily">each day</option>
            <option value="weekly">each week</option>
            <option value="monthly">each month</option>
          </field.Select>
        )}
      </form.AppField>
      {(frequency === 'weekly' || frequency === 'monthly') && (
        <form.AppField name="day">
          {(field) => (
            <field.Select label={frequency === 'weekly' ? 'On' : 'On day'}>
              {frequency === 'weekly'
                ? WEEKDAYS.map((name, index) => (
                    <option key={name} value={String(index + 1)}>
                      {name}
                    </option>
                  ))
                : DAYS_OF_MONTH.map((day) => (
                    <option key={day} value={String(day)}>
                      {day}
                    </option>
                  ))}
            </field.Select>
          )}
        </form.AppField>
      )}
      {frequency !== 'hourly' && (
        <form.AppField name="hour">
          {(field) => (
            <field.Select label="At (UTC)">
              {HOURS.map((hour) => (
                <option key={hour} value={String(hour)}>
                  {String(hour).padStart(2, '0')}:00
                </option>
              ))}
            </field.Select>
          )}
        </form.AppField>
      )}
      <form.AppField name="days">
        {(field) => (
          <field.Select label="Keep each for">
            {KEPT_DAYS.map((days) => (
              <option key={days} value={days}>
                {days === '1' ? '1 day' : `${days} days`}
              </option>
            ))}
          </field.Select>
        )}
      </form.AppField>
      <div className="mb-3">
        <Button needs="works" type="submit" busy={busy}>
          Add to schedule
        </Button>
      </div>
    </form>
  )
}
