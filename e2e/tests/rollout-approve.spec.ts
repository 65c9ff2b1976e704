import { expect, type Page, test } from '@playwright/test'

import { baseUrl } from '../lib/env.ts'
import { expectAccessible, expectFits, screenshot, signIn, watchErrors } from '../lib/journey.ts'
import { becomes, control, planRollout, type Project, rolloutCompute, runningProject, startPlanned } from '../lib/rollouts.ts'

const STEP = 60_000

/** The plan follows the feature that is chosen: nobody here could be brought onto a newer minor. Then back. */
async function planAnotherFeature(page: Page, projects: Project[]): Promise<void> {
  const feature = page.getByLabel('What to roll out')
  const start = page.getByRole('button', { name: 'Start rollout' })
  const switched = (number: number) => page.getByRole('heading', { name: `Will be switched (${String(number)})` })
  await expect(feature).toHaveValue('image_pushdown')
  await expect(page.getByText('Expected saving', { exact: true })).toBeVisible()
  await feature.selectOption({ label: 'Postgres minor' })
  await expect(switched(0)).toBeVisible()
  await expect(page.getByText('Onto Postgres', { exact: true })).toBeVisible()
  const leftOut = page.getByRole('region', { name: 'Excluded computes' })
  for (const { name } of projects) await expect(leftOut.getByRole('row', { name })).toContainText(/runs 15\.\d+ already/)
  await expect(page.getByLabel('Onto the minor')).toHaveAttribute('placeholder', /^15\.\d+$/)
  await expect(start).toBeDisabled()
  await expectAccessible(page)
  await screenshot(page, 'rollout-plan-minor')
  await feature.selectOption({ label: 'Image pushdown' })
  await expect(switched(projects.length)).toBeVisible()
  await expect(page.getByLabel('Onto the minor')).toHaveCount(0)
  await expect(start).toBeEnabled()
}

/** Windows of no length: every compute is switched and confirmed, nothing is judged; that is for other journeys. */
test('plan, canary, hold, approve, done; then one compute and then all go back', async ({ page }) => {
  test.setTimeout(480_000)
  const errors = watchErrors(page)
  await signIn(page)
  const run = `approve-${String(Date.now())}`
  const projects: Project[] = await Promise.all(['a', 'b'].map((name) => runningProject(`${run}-${name}`)))

  await planRollout(page, { name: run, projects, baseline: 0, bake: 0, soak: 0, approval: true })
  await expectAccessible(page)
  await expectFits(page)
  await screenshot(page, 'rollout-plan')
  await planAnotherFeature(page, projects)
  const id = await startPlanned(page, run)

  await becomes(page, id, 'held', STEP)
  const waves = page.getByRole('list', { name: 'Waves' }).getByRole('listitem')
  await expect(waves.first()).toContainText('canary')
  await expect(waves.first()).toContainText('1 of 1 passed')
  const states = await Promise.all(projects.map(({ computeId }) => rolloutCompute(id, computeId)))
  expect(states.map((compute) => compute.state).sort()).toEqual(['passed', 'pending'])
  await expectAccessible(page)
  await expectFits(page)
  await screenshot(page, 'rollout-held')

  expect(await control(page, 'Approve')).toMatch(/begins: 1 compute/)
  await becomes(page, id, 'completed', STEP)
  await expect(page.getByText('2 of 2 shown')).toBeVisible()

  await page.getByRole('button', { name: 'List', exact: true }).click()
  await expect(page).toHaveURL(/view=list/)
  await page.getByRole('button', { name: projects[0]?.computeId ?? '' }).click()
  const drawer = page.getByRole('dialog')
  await expect(drawer.getByText('XLOG_FPW_CHANGE at')).toBeVisible()
  await expectAccessible(page)
  await screenshot(page, 'rollout-compute')
  await control(page, `Roll back ${projects[0]?.computeId ?? ''}`, 'Roll back')
  await expect(drawer.getByText('Went back')).toBeVisible({ timeout: STEP })
  await page.keyboard.press('Escape')
  await expect(page.locator('h1')).toContainText('completed')

  await page.goto(`${baseUrl()}/fleet/pushdown?q=${run}`)
  const coverage = page.getByRole('region', { name: 'Image pushdown by compute' })
  await expect(coverage.getByText('yes', { exact: true })).toHaveCount(1)
  await expect(coverage.getByText('no', { exact: true })).toHaveCount(1)
  await expectAccessible(page)
  await screenshot(page, 'fleet-pushdown')

  await page.goto(`${baseUrl()}/rollouts/${id}`)
  expect(await control(page, 'Roll back')).toMatch(/1 compute that this rollout switched/)
  await becomes(page, id, 'rolled_back', STEP)
  expect(errors).toEqual([])
})
