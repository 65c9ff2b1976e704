import { expect, type Page } from '@playwright/test'

import { call } from './api.ts'
import { goTo } from './journey.ts'

export type Project = { id: string; name: string; computeId: string }

type Endpoint = { id: string; current_state: string; pending_state: string | null }

/** A project whose compute runs, made by the API: journeys about rollouts are not about making projects. */
export async function runningProject(name: string): Promise<Project> {
  const { project } = await call<{ project: { id: string } }>('POST', '/projects', { project: { name } })
  let computeId = ''
  await expect(async () => {
    const { endpoints } = await call<{ endpoints: Endpoint[] }>('GET', `/projects/${project.id}/endpoints`)
    const endpoint = endpoints[0]
    expect(endpoint?.current_state).toBe('active')
    expect(endpoint?.pending_state).toBeFalsy()
    computeId = endpoint?.id ?? ''
  }).toPass({ timeout: 90_000, intervals: [500] })
  return { id: project.id, name, computeId }
}

export type RolloutCompute = { state: string; reason: string | null; switched_at: string | null; rolled_back_at: string | null }

export async function rolloutCompute(rolloutId: string, computeId: string): Promise<RolloutCompute> {
  const { compute } = await call<{ compute: RolloutCompute }>('GET', `/rollouts/${rolloutId}/computes/${computeId}`)
  return compute
}

export type PlanFields = {
  name: string
  projects: { name: string }[]
  baseline: number
  bake: number
  soak: number
  approval?: boolean
  judgeBy?: 'controls' | 'bounds'
  /** What a p99 may rise by, ms, whatever it was. */
  slack?: number
}

/** Fills the plan editor; the plan beside it is a dry run, and nothing is started. */
export async function planRollout(page: Page, { name, projects, baseline, bake, soak, approval, judgeBy, slack }: PlanFields): Promise<void> {
  await goTo(page, 'Rollouts')
  await page.getByRole('link', { name: 'New rollout' }).click()
  await page.getByLabel('Rollout name').fill(name)
  for (const project of projects) {
    await page.getByLabel('Find a project').fill(project.name)
    await page.getByLabel(project.name, { exact: true }).check()
  }
  await page.getByLabel('Baseline window, seconds').fill(String(baseline))
  await page.getByLabel('Bake window, seconds').fill(String(bake))
  await page.getByLabel('Soak after each wave, seconds').fill(String(soak))
  if (judgeBy) await page.getByLabel('Judge by').selectOption(judgeBy)
  if (slack !== undefined) {
    await page.getByText('Hard bounds', { exact: true }).click()
    await page.getByLabel('p99 slack, ms').fill(String(slack))
  }
  if (approval) await page.getByLabel('Hold for approval after each wave').check()
  await expect(page.getByRole('heading', { name: `Will be switched (${String(projects.length)})` })).toBeVisible({ timeout: 30_000 })
}

/** Starts what is planned, as a person does, and returns the rollout's id. */
export async function startPlanned(page: Page, name: string): Promise<string> {
  await page.getByRole('button', { name: 'Start rollout' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Start', exact: true }).click()
  await expect(page).not.toHaveURL(/\/rollouts\/new/, { timeout: 30_000 })
  await expect(page.getByRole('heading', { level: 1, name })).toBeVisible()
  return new URL(page.url()).pathname.split('/').at(-1) ?? ''
}

/** Uses a control, and returns what its dialog said would happen; `verb` is what the dialog's own button says. */
export async function control(page: Page, label: string, verb = label): Promise<string> {
  await page.getByRole('button', { name: label, exact: true }).click()
  const dialog = page.getByRole('dialog').last()
  const said = await dialog.innerText()
  await dialog.getByRole('button', { name: verb, exact: true }).click()
  return said
}

type RolloutAsTold = { status: string; status_reason: string | null }

/** It stays as it is until a person or a later verdict changes it. */
const SETTLED = ['held', 'paused', 'aborted', 'failed', 'completed', 'rolled_back']

/**
 * Waits, `timeout` ms at most, until the rollout is so and the page says it. Throws, with the reasons of its computes,
 * as soon as it settles otherwise than it was and than it should.
 */
export async function becomes(page: Page, id: string, status: 'held' | 'completed' | 'rolled_back', timeout: number): Promise<void> {
  const read = async () => (await call<{ rollout: RolloutAsTold }>('GET', `/rollouts/${id}`)).rollout
  const deadline = Date.now() + timeout
  const was = await read()
  let told = was
  while (told.status !== status) {
    const settled = told.status !== was.status && SETTLED.includes(told.status)
    if (settled || Date.now() > deadline) throw new Error(`rollout ${id} is ${told.status}, not ${status}: ${await reasons(id, told)}`)
    await page.waitForTimeout(500)
    told = await read()
  }
  await expect(page.locator('h1')).toContainText(status.replace('_', ' '))
}

async function reasons(id: string, told: RolloutAsTold): Promise<string> {
  const { computes } = await call<{ computes: (RolloutCompute & { compute_id: string })[] }>('GET', `/rollouts/${id}/computes`)
  const each = computes.map((compute) => `${compute.compute_id} ${compute.state} (${compute.reason ?? 'no reason'})`)
  return [told.status_reason ?? 'no reason', ...each].join('; ')
}
