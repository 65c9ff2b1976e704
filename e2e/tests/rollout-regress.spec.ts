import { expect, test } from '@playwright/test'

import { configure } from '../lib/api.ts'
import { hang } from '../lib/fault.ts'
import { expectAccessible, expectFits, screenshot, signIn, watchErrors } from '../lib/journey.ts'
import { planRollout, rolloutCompute, runningProject, startPlanned } from '../lib/rollouts.ts'

/**
 * Storage hangs while a switched compute bakes. That breaks a hard bound, which needs no statistics: the compute goes
 * back by itself, and the wave stops.
 */
test('storage that hangs during the bake sends the compute back by itself', async ({ page }) => {
  test.setTimeout(480_000)
  const errors = watchErrors(page)
  await signIn(page)
  const run = `regress-${String(Date.now())}`
  const project = await runningProject(`${run}-a`)
  // Windows span whole checkpoint cycles: 30 s is the shortest there is.
  await configure(project.id, { checkpoint_timeout: '30s' })

  await planRollout(page, { name: run, projects: [project], baseline: 5, bake: 60, soak: 0 })
  const id = await startPlanned(page, run)
  const state = async () => (await rolloutCompute(id, project.computeId)).state
  await expect.poll(state, { timeout: 90_000, intervals: [500] }).toBe('baking')

  const recover = hang('pageserver')
  try {
    // Looked at every 15 s, given 10 s to answer.
    await expect.poll(state, { timeout: 60_000, intervals: [500] }).not.toBe('baking')
  } finally {
    recover()
  }
  await expect.poll(async () => (await rolloutCompute(id, project.computeId)).rolled_back_at, { timeout: 60_000, intervals: [500] }).not.toBeNull()

  const compute = await rolloutCompute(id, project.computeId)
  expect(compute.state).toBe('regressed')
  expect(compute.reason).toMatch(/pageserver/)
  await expect(page.getByRole('list', { name: 'Why computes wait' })).toContainText('pageserver')
  await expect(page.locator('h1')).toContainText(/held|failed|completed/, { timeout: 30_000 })
  await expectAccessible(page)
  await expectFits(page)
  await screenshot(page, 'rollout-regressed')

  await page.getByRole('button', { name: 'List', exact: true }).click()
  await page.getByRole('button', { name: project.computeId }).click()
  await expect(page.getByRole('dialog').getByText('Went back')).toBeVisible()
  await page.keyboard.press('Escape')
  await expect(page.getByRole('dialog')).toHaveCount(0)
  expect(errors).toEqual([])
})
