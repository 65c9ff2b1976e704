import { useStore } from '@tanstack/react-form'

import { FEATURES } from '~/features/fleet/compute-features'
import { withForm } from '~/shared/form'

import { DEFAULT_FORM } from './plan-form'

const JUDGED = {
  controls:
    'Statistics over both windows. Too little traffic or too few controls: the rollout holds and says what would settle it.',
  bounds:
    'Errors, p99 ceiling, chain length and images alone: for a fleet that is too small or too quiet for statistics.',
}

/** How long is measured, by what it is judged, and where the rollout waits for a person. */
export const WindowFields = withForm({
  defaultValues: DEFAULT_FORM,
  render: function WindowFields({ form }) {
    const { feature, judgeBy } = useStore(form.store, (state) => state.values)
    return (
      <>
        <form.AppField name="baseline">
          {(field) => (
            <field.Text
              label="Baseline window, seconds"
              inputMode="numeric"
              hint="Measured before the switch; rounded up to whole checkpoint cycles."
            />
          )}
        </form.AppField>
        <form.AppField name="settle">
          {(field) => (
            <field.Text
              label="Settle after the switch, seconds"
              inputMode="numeric"
              hint={FEATURES[feature].settles}
            />
          )}
        </form.AppField>
        <form.AppField name="bake">
          {(field) => (
            <field.Text
              label="Bake window, seconds"
              inputMode="numeric"
              hint="Measured after the switch, before the verdict."
            />
          )}
        </form.AppField>
        <form.AppField name="judgeBy">
          {(field) => (
            <field.Select label="Judge by" hint={JUDGED[judgeBy]}>
              <option value="controls">Unswitched computes beside it</option>
              <option value="bounds">Hard bounds only</option>
            </field.Select>
          )}
        </form.AppField>
        {judgeBy === 'controls' && (
          <form.AppField name="tolerated">
            {(field) => (
              <field.Text
                label="Tolerated, × the controls"
                inputMode="decimal"
                hint="A pass rules out that a p99 or a rate got worse by more."
              />
            )}
          </form.AppField>
        )}
        <form.AppField name="soak">
          {(field) => (
            <field.Text
              label="Soak after each wave, seconds"
              inputMode="numeric"
              hint="The fleet is watched before the next wave begins."
            />
          )}
        </form.AppField>
        <form.AppField name="planApproval">
          {(field) => <field.Check label="Hold until somebody approves the plan" />}
        </form.AppField>
        <form.AppField name="approval">
          {(field) => <field.Check label="Hold for approval after each wave" />}
        </form.AppField>
      </>
    )
  },
})
