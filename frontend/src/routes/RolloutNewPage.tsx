import { useStore } from '@tanstack/react-form'
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useDeferredValue, useState } from 'react'

import { errorText } from '~/api/errors'
import type { RolloutPlan } from '~/api/types'
import { type Feature, FEATURE_NAMES, FEATURES, isFeature } from '~/features/fleet/compute-features'
import { marks, readForm } from '~/features/rollouts/plan-body'
import {
  chooseFeature,
  DEFAULT_FORM,
  LONGEST,
  type PlanForm,
  selectorText,
  wavesText,
  whenText,
} from '~/features/rollouts/plan-form'
import { BOUND_FIELDS, BoundFields, CareFields, FreezeFields } from '~/features/rollouts/PlanCareFields'
import { Section, SelectorFields, WavesFields } from '~/features/rollouts/PlanFields'
import { PlanView } from '~/features/rollouts/PlanView'
import { WindowFields } from '~/features/rollouts/PlanWindowFields'
import { createRollout, planQuery, rolloutKeys } from '~/features/rollouts/queries'
import { bytesPerSecond, computes, count } from '~/lib/format'
import { submits, useAppForm, wrong } from '~/shared/form'
import { PageHeader } from '~/shared/PageHeader'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { Dialog } from '~/ui/Dialog'
import { SelectField } from '~/ui/Field'
import { Loading, Notice } from '~/ui/Notice'

/** What starting this plan does, for the dialog that asks. */
function startSays(plan: RolloutPlan, form: PlanForm): string {
  const first = plan.waves[0]
  const begins = form.planApproval
    ? 'Nothing begins until somebody approves the plan.'
    : `It begins now with wave “${first?.name ?? ''}”: ${computes(first?.computes ?? 0)}.`
  const between = form.approval
    ? 'Each later wave waits for approval.'
    : 'Each later wave begins by itself once the one before has passed.'
  const saves =
    form.feature === 'image_pushdown'
      ? `; ${bytesPerSecond(plan.expected_wal_saved_bytes_per_second)} of WAL is expected to be saved`
      : ''
  const waves = `${count(plan.waves.length)} ${plan.waves.length === 1 ? 'wave' : 'waves'}`
  const does = `${computes(plan.computes_total)} in ${waves} ${FEATURES[form.feature].does(plan.target_version)}`
  return `${does}${saves}. ${begins} ${between} You can pause, abort or roll back at any moment.`
}

/** The hard bounds of a plan, in one line. */
function boundsText(form: PlanForm): string {
  const latency = `p99 at most ${form.p99Ratio}×`
  if (form.feature === 'postgres_minor') return latency
  return `${latency}, ${form.chainLength.trim() ? `chains to ${form.chainLength}` : 'no bound on chains'}`
}

function StartDialog({
  plan,
  form,
  open,
  onClose,
}: {
  plan: RolloutPlan
  form: PlanForm
  open: boolean
  onClose: () => void
}) {
  const navigate = useNavigate()
  const start = useAction(createRollout, {
    done: 'Rollout started',
    invalidate: [rolloutKeys.all],
    onDone: ({ rollout }) => void navigate({ to: '/rollouts/$rolloutId', params: { rolloutId: rollout.id } }),
  })
  return (
    <Dialog open={open} onClose={onClose} title={`Start “${form.name.trim()}”?`} description={startSays(plan, form)}>
      <div className="flex flex-wrap justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button
          variant="primary"
          busy={start.isPending}
          onClick={() => {
            start.mutate(readForm(form).body)
          }}
        >
          Start
        </Button>
      </div>
    </Dialog>
  )
}

/** Why a plan cannot be started; null when it can. */
function refusalOf(wrong: boolean, error: Error | null, plan: RolloutPlan | undefined): string | null {
  if (wrong) return 'Mend the fields that are marked first.'
  if (error) return errorText(error)
  if (!plan) return 'The plan is being computed.'
  return plan.computes_total === 0 ? 'The plan switches nobody.' : null
}

export function RolloutNewPage() {
  const [asking, setAsking] = useState(false)
  const editor = useAppForm({
    defaultValues: DEFAULT_FORM,
    validators: { onChange: ({ value }) => wrong(marks(value, readForm(value).errors)) },
    onSubmit: () => {
      if (refusal === null) setAsking(true)
    },
  })
  const form = useStore(editor.store, (state) => state.values)
  const { body, errors } = readForm(useDeferredValue(form))
  const isWrong = Object.keys(errors).length > 0
  // The name changes nothing in a plan.
  const plan = useQuery(planQuery({ ...body, name: 'plan' }, !isWrong))
  const refusal = refusalOf(isWrong, plan.error, plan.data?.plan)
  const has = (...names: string[]) =>
    Object.keys(errors).some((field) => names.some((name) => field === name || field.startsWith(`${name}-`)))
  const choose = (feature: Feature) => {
    const chosen = chooseFeature(form, feature)
    editor.setFieldValue('feature', chosen.feature)
    editor.setFieldValue('name', chosen.name)
    editor.setFieldValue('settle', chosen.settle)
  }

  return (
    <>
      <PageHeader
        above={
          <Link to="/rollouts" className="underline">
            Rollouts
          </Link>
        }
        title="New rollout"
        note={
          `${FEATURES[form.feature].name}: ${FEATURES[form.feature].explains} ` +
          'What you see is a dry run; nothing changes before you start it.'
        }
        actions={
          <Button needs="decides-on-all" variant="primary" type="submit" form="plan" disabledReason={refusal}>
            Start rollout
          </Button>
        }
      />
      {refusal && plan.data && (
        <p role="status" className="mb-2 text-sm text-muted">
          {refusal}
        </p>
      )}
      <div className="grid items-start gap-4 lg:grid-cols-3">
        <Card
          title="Who and how"
          note="The defaults are a careful rollout of everyone."
          className="lg:sticky lg:top-4 lg:max-h-[calc(100dvh-2rem)] lg:overflow-y-auto"
        >
          <form id="plan" onSubmit={submits(editor)}>
            <SelectField
              label="What to roll out"
              value={form.feature}
              onChange={(event) => {
                if (isFeature(event.target.value)) choose(event.target.value)
              }}
            >
              {FEATURE_NAMES.map((name) => (
                <option key={name} value={name}>
                  {FEATURES[name].name}
                </option>
              ))}
            </SelectField>
            {form.feature === 'postgres_minor' && (
              <editor.AppField name="target">
                {(field) => (
                  <field.Text
                    label="Onto the minor"
                    placeholder={plan.data?.plan.target_version ?? 'the newest there is'}
                    hint="Left empty: the newest that is installed, fixed when the rollout starts."
                  />
                )}
              </editor.AppField>
            )}
            <editor.AppField name="name">
              {(field) => <field.Text label="Rollout name" required maxLength={LONGEST.name} />}
            </editor.AppField>
            <Section
              title="Who"
              says={selectorText(form)}
              bad={has('tags', 'pgVersions', 'sizeMin', 'sizeMax', 'walMin', 'walMax', 'orgs', 'projects')}
              open
            >
              <SelectorFields form={editor} />
            </Section>
            <Section title="Waves" says={wavesText(form)} bad={has('waves', 'wave')}>
              <WavesFields form={editor} />
            </Section>
            <Section
              title="Windows"
              says={`baseline ${form.baseline} s, bake ${form.bake} s, soak ${form.soak} s`}
              bad={has('baseline', 'settle', 'bake', 'soak', 'tolerated')}
              open
            >
              <WindowFields form={editor} />
            </Section>
            <Section title="When" says={whenText(form)} bad={has('freeze', 'freezes')}>
              <FreezeFields form={editor} />
            </Section>
            <Section
              title="Care"
              says={`at most ${form.concurrent} at once, holdout ${form.holdoutPercent} %`}
              bad={has('concurrent', 'perCell', 'perOrg', 'failedPercent', 'holdoutPercent', 'deadline')}
            >
              <CareFields form={editor} />
            </Section>
            <Section title="Hard bounds" says={boundsText(form)} bad={has(...BOUND_FIELDS)}>
              <BoundFields form={editor} />
            </Section>
          </form>
        </Card>
        <Card
          title="Plan"
          note="Dry run, computed from what runs now; frozen when the rollout starts."
          className="lg:col-span-2"
          actions={
            plan.isFetching ? (
              <span role="status" className="text-xs text-muted">
                computing…
              </span>
            ) : null
          }
        >
          {plan.error ? (
            <Notice tone="bad">{errorText(plan.error)}</Notice>
          ) : plan.data ? (
            <PlanView plan={plan.data.plan} />
          ) : isWrong ? (
            <Notice tone="warn">The plan is computed once the marked fields are mended.</Notice>
          ) : (
            <Loading what="plan" />
          )}
        </Card>
      </div>
      {plan.data && (
        <StartDialog
          plan={plan.data.plan}
          form={form}
          open={asking}
          onClose={() => {
            setAsking(false)
          }}
        />
      )}
    </>
  )
}
