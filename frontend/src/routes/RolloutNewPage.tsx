import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { type SyntheticEvent, useDeferredValue, useState } from 'react'

import { errorText } from '~/api/errors'
import type { RolloutPlan } from '~/api/types'
import { FEATURE_NAMES, FEATURES, isFeature } from '~/features/fleet/compute-features'
import { readForm } from '~/features/rollouts/plan-body'
import { chooseFeature, DEFAULT_FORM, LONGEST, type PlanForm, selectorText, wavesText, whenText } from '~/features/rollouts/plan-form'
import { BOUND_FIELDS, BoundFields, CareFields, FreezeFields } from '~/features/rollouts/PlanCareFields'
import { Section, SelectorFields, WavesFields } from '~/features/rollouts/PlanFields'
import { PlanView } from '~/features/rollouts/PlanView'
import { createRollout, planQuery, rolloutKeys } from '~/features/rollouts/queries'
import { bytesPerSecond, computes, count } from '~/lib/format'
import { PageHeader } from '~/shared/PageHeader'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { Dialog } from '~/ui/Dialog'
import { Checkbox, SelectField, TextField } from '~/ui/Field'
import { Loading, Notice } from '~/ui/Notice'

/** What starting this plan does, for the dialog that asks. */
function startSays(plan: RolloutPlan, form: PlanForm): string {
  const first = plan.waves[0]
  const begins = form.planApproval ? 'Nothing begins until somebody approves the plan.' : `It begins now with wave “${first?.name ?? ''}”: ${computes(first?.computes ?? 0)}.`
  const between = form.approval ? 'Each later wave waits for approval.' : 'Each later wave begins by itself once the one before has passed.'
  const saves = form.feature === 'image_pushdown' ? `; ${bytesPerSecond(plan.expected_wal_saved_bytes_per_second)} of WAL is expected to be saved` : ''
  return `${computes(plan.computes_total)} in ${count(plan.waves.length)} ${plan.waves.length === 1 ? 'wave' : 'waves'} ${FEATURES[form.feature].does(plan.target_version)}${saves}. ${begins} ${between} You can pause, abort or roll back at any moment.`
}

function StartDialog({ plan, form, open, onOpenChange }: { plan: RolloutPlan; form: PlanForm; open: boolean; onOpenChange: (open: boolean) => void }) {
  const navigate = useNavigate()
  const start = useAction(createRollout, {
    done: 'Rollout started',
    invalidate: [rolloutKeys.all],
    onDone: ({ rollout }) => void navigate({ to: '/rollouts/$rolloutId', params: { rolloutId: rollout.id } }),
  })
  return (
    <Dialog open={open} onOpenChange={onOpenChange} title={`Start “${form.name.trim()}”?`} description={startSays(plan, form)}>
      <div className="flex flex-wrap justify-end gap-2">
        <Button onClick={() => { onOpenChange(false) }}>Cancel</Button>
        <Button variant="primary" busy={start.isPending} onClick={() => { start.mutate(readForm(form).body) }}>
          Start
        </Button>
      </div>
    </Dialog>
  )
}

const JUDGED = {
  controls: 'Statistics over both windows. Too little traffic or too few controls: the rollout holds and says what would settle it.',
  bounds: 'Errors, p99 ceiling, chain length and images alone: for a fleet that is too small or too quiet for statistics.',
}

export function RolloutNewPage() {
  const [form, setForm] = useState(DEFAULT_FORM)
  const [asking, setAsking] = useState(false)
  const set = (change: Partial<PlanForm>) => { setForm((current) => ({ ...current, ...change })) }
  const { body, errors } = readForm(useDeferredValue(form))
  const wrong = Object.keys(errors).length > 0
  // The name changes nothing in a plan.
  const plan = useQuery(planQuery({ ...body, name: 'plan' }, !wrong))
  const refusal = wrong ? 'Mend the fields that are marked first.' : plan.error ? errorText(plan.error) : !plan.data ? 'The plan is being computed.' : plan.data.plan.computes_total === 0 ? 'The plan switches nobody.' : null
  const fields = { form, errors, set }
  const has = (...names: string[]) => Object.keys(errors).some((field) => names.some((name) => field === name || field.startsWith(`${name}-`)))
  const text = (field: 'name' | 'target' | 'baseline' | 'settle' | 'bake' | 'soak' | 'tolerated') => ({
    value: form[field],
    error: errors[field],
    onChange: (event: { target: { value: string } }) => { set({ [field]: event.target.value }) },
  })

  function submit(event: SyntheticEvent) {
    event.preventDefault()
    if (refusal === null) setAsking(true)
  }

  return (
    <>
      <PageHeader
        above={<Link to="/rollouts" className="underline">Rollouts</Link>}
        title="New rollout"
        note={`${FEATURES[form.feature].name}: ${FEATURES[form.feature].explains} What you see is a dry run; nothing changes before you start it.`}
        actions={
          <Button variant="primary" type="submit" form="plan" disabledReason={refusal}>
            Start rollout
          </Button>
        }
      />
      {refusal && plan.data && <p role="status" className="mb-2 text-sm text-muted">{refusal}</p>}
      <div className="grid items-start gap-4 lg:grid-cols-3">
        <Card title="Who and how" note="The defaults are a careful rollout of everyone." className="lg:sticky lg:top-4 lg:max-h-[calc(100dvh-2rem)] lg:overflow-y-auto">
          <form id="plan" onSubmit={submit}>
            <SelectField label="What to roll out" value={form.feature} onChange={(event) => { if (isFeature(event.target.value)) set(chooseFeature(form, event.target.value)) }}>
              {FEATURE_NAMES.map((name) => <option key={name} value={name}>{FEATURES[name].name}</option>)}
            </SelectField>
            {form.feature === 'postgres_minor' && <TextField label="Onto the minor" placeholder={plan.data?.plan.target_version ?? 'the newest there is'} hint="Left empty: the newest that is installed, fixed when the rollout starts." {...text('target')} />}
            <TextField label="Rollout name" required maxLength={LONGEST.name} {...text('name')} />
            <Section title="Who" says={selectorText(form)} bad={has('tags', 'pgVersions', 'sizeMin', 'sizeMax', 'walMin', 'walMax')} open>
              <SelectorFields {...fields} />
            </Section>
            <Section title="Waves" says={wavesText(form)} bad={has('waves', 'wave')}>
              <WavesFields {...fields} />
            </Section>
            <Section title="Windows" says={`baseline ${form.baseline} s, bake ${form.bake} s, soak ${form.soak} s`} bad={has('baseline', 'settle', 'bake', 'soak', 'tolerated')} open>
              <TextField label="Baseline window, seconds" inputMode="numeric" hint="Measured before the switch; rounded up to whole checkpoint cycles." {...text('baseline')} />
              <TextField label="Settle after the switch, seconds" inputMode="numeric" hint={FEATURES[form.feature].settles} {...text('settle')} />
              <TextField label="Bake window, seconds" inputMode="numeric" hint="Measured after the switch, before the verdict." {...text('bake')} />
              <SelectField label="Judge by" value={form.judgeBy} hint={JUDGED[form.judgeBy]} onChange={(event) => { set({ judgeBy: event.target.value === 'bounds' ? 'bounds' : 'controls' }) }}>
                <option value="controls">Unswitched computes beside it</option>
                <option value="bounds">Hard bounds only</option>
              </SelectField>
              {form.judgeBy === 'controls' && <TextField label="Tolerated, × the controls" inputMode="decimal" hint="A pass rules out that a p99 or a rate got worse by more." {...text('tolerated')} />}
              <TextField label="Soak after each wave, seconds" inputMode="numeric" hint="The fleet is watched before the next wave begins." {...text('soak')} />
              <Checkbox label="Hold until somebody approves the plan" checked={form.planApproval} onChange={(planApproval) => { set({ planApproval }) }} />
              <Checkbox label="Hold for approval after each wave" checked={form.approval} onChange={(approval) => { set({ approval }) }} />
            </Section>
            <Section title="When" says={whenText(form)} bad={has('freeze')}>
              <FreezeFields {...fields} />
            </Section>
            <Section title="Care" says={`at most ${form.concurrent} at once, holdout ${form.holdoutPercent} %`} bad={has('concurrent', 'perCell', 'perOrg', 'failedPercent', 'holdoutPercent', 'deadline')}>
              <CareFields {...fields} />
            </Section>
            <Section title="Hard bounds" says={`p99 at most ${form.p99Ratio}×${form.feature === 'postgres_minor' ? '' : form.chainLength.trim() ? `, chains to ${form.chainLength}` : ', no bound on chains'}`} bad={has(...BOUND_FIELDS)}>
              <BoundFields {...fields} />
            </Section>
          </form>
        </Card>
        <Card title="Plan" note="Dry run, computed from what runs now; frozen when the rollout starts." className="lg:col-span-2" actions={plan.isFetching ? <span role="status" className="text-xs text-muted">computing…</span> : null}>
          {plan.error ? <Notice tone="bad">{errorText(plan.error)}</Notice> : plan.data ? <PlanView plan={plan.data.plan} /> : wrong ? <Notice tone="warn">The plan is computed once the marked fields are mended.</Notice> : <Loading what="plan" />}
        </Card>
      </div>
      {plan.data && <StartDialog plan={plan.data.plan} form={form} open={asking} onOpenChange={setAsking} />}
    </>
  )
}
