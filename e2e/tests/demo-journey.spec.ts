import { expect, type Page, test } from '@playwright/test'

import { configure } from '../lib/api.ts'
import { baseUrl } from '../lib/env.ts'
import { expectAccessible, goTo, screenshot, picture, signIn, watchErrors } from '../lib/journey.ts'
import { becomes, control, planRollout, startPlanned } from '../lib/rollouts.ts'
import { checkTprocC, driveTprocC, loadTprocC } from '../lib/load.ts'

async function connectionString(page: Page): Promise<string> {
  await page.getByRole('button', { name: 'Show connection string' }).click()
  const code = page.locator('code', { hasText: 'postgresql://' })
  await expect(code).toBeVisible()
  return code.innerText()
}

test('a wrong API key is refused with a reason and nothing is shown', async ({ page }) => {
  await page.goto(`${baseUrl()}/projects`)
  await expect(page).toHaveURL(/\/login/)
  await page.getByRole('button', { name: 'Use an API key' }).click()
  await page.getByLabel('API key').fill('not-a-key')
  await page.getByRole('button', { name: 'Sign in', exact: true }).click()
  await expect(page.getByRole('alert')).toBeVisible()
  await expect(page).toHaveURL(/\/login/)
})

type Database = { name: string; uri: string }

/** A project made in the browser, at the shortest checkpoint distance Postgres allows, so that windows can be short. */
async function createProject(page: Page, name: string): Promise<Database> {
  await goTo(page, 'Projects')
  await page.getByRole('button', { name: 'New project' }).first().click()
  await page.getByLabel('Name').fill(name)
  await page.getByRole('button', { name: 'Create project' }).click()
  await expect(page.getByRole('heading', { name })).toBeVisible()
  await expect(page.getByRole('list', { name: 'Branches' }).getByText('active', { exact: true })).toBeVisible({ timeout: 60_000 })
  await configure(new URL(page.url()).pathname.split('/').at(-1) ?? '', { checkpoint_timeout: '30s' })
  return { name, uri: await connectionString(page) }
}

/** Four, as in the demo, with `make test-long` and for pictures; two are enough for a canary and a wave behind it. */
const NAMES = process.env.WEIR_TEST_LONG || process.env.WEIR_E2E_SCREENSHOTS ? ['orders', 'billing', 'stock', 'users'] : ['orders', 'billing']

test(`${String(NAMES.length)} projects under load, a branch, a rollout in two waves, evidence, roll back`, async ({ page }) => {
  const errors = watchErrors(page)
  await signIn(page)
  const run = Date.now().toString(36).slice(-5)
  const all = `${String(NAMES.length)} of ${String(NAMES.length)}`
  const databases: Database[] = []
  for (const name of NAMES) databases.push(await createProject(page, `${name}-${run}`))
  for (const { uri } of databases) await loadTprocC(uri)
  const loads = databases.map(({ uri }) => driveTprocC(uri, 600))
  try {
    await page.getByRole('button', { name: 'Branch', exact: true }).first().click()
    await page.getByLabel('Name').fill('side')
    await page.getByLabel('With a read-write compute').uncheck()
    await page.getByRole('button', { name: 'Create branch' }).click()
    await expect(page.getByRole('list', { name: 'Branches' }).getByText('side')).toBeVisible()
    await expect(page.getByRole('list', { name: 'Branches' }).getByText('ready', { exact: true })).toHaveCount(2, { timeout: 30_000 })
    await expectAccessible(page)
    await screenshot(page, 'project')

    await page.getByRole('list', { name: 'Branches' }).getByRole('link', { name: /^ep-/ }).first().click()
    await expect(page.getByRole('img', { name: /^WAL bytes a second/ })).toBeVisible({ timeout: 30_000 })
    await expectAccessible(page)
    await screenshot(page, 'compute')

    // Short windows of a light load say too little for statistics, and the slowest hundredth is two transactions, on a
    // machine that runs other tests meanwhile; the journeys about verdicts are others.
    await planRollout(page, { name: `Pushdown ${run}`, projects: databases, baseline: 30, bake: 30, soak: 0, judgeBy: 'bounds', slack: 5000 })
    await screenshot(page, 'demo-rollout-plan')
    const id = await startPlanned(page, `Pushdown ${run}`)
    const waves = page.getByRole('list', { name: 'Waves' }).getByRole('listitem')
    await expect(waves).toHaveCount(2)
    await expect(waves.first()).toContainText('canary')
    await becomes(page, id, 'completed', 360_000)
    await expect(page.getByText(`${all} shown`)).toBeVisible()
    await expect(page.getByText(`${all} computes measured in both windows`)).toBeVisible()
    await picture(page, 'rollout')
    await screenshot(page, 'demo-rollout-done')

    await page.getByRole('button', { name: new RegExp(`^${databases[0]?.name ?? ''}`) }).click()
    const drawer = page.getByRole('dialog')
    await expect(drawer.getByRole('row', { name: /page images/ }).last()).toContainText('0 B')
    await expect(drawer.getByText('XLOG_FPW_CHANGE at')).toBeVisible()
    await expectAccessible(page)
    await screenshot(page, 'demo-rollout-compute')
    await drawer.getByRole('heading', { name: 'WAL written' }).evaluate((heading) => { heading.scrollIntoView({ block: 'start' }) })
    await picture(page, 'rollout-compute')
    await page.keyboard.press('Escape')

    await control(page, 'Roll back')
    await becomes(page, id, 'rolled_back', 60_000)
  } finally {
    const driven = await Promise.all(loads.map((load) => load.stop()))
    for (const figures of driven) expect(figures).toMatchObject({ failed: 0, aborted_clients: 0 })
  }
  for (const { uri } of databases) await checkTprocC(uri)

  await goTo(page, 'Fleet')
  await expect(page.getByRole('table', { name: 'Safekeeper nodes' }).getByText('healthy')).toHaveCount(3)
  await expect(page.getByRole('table', { name: 'Pageserver nodes' }).getByText('healthy')).toHaveCount(1)
  await expectAccessible(page)
  await screenshot(page, 'fleet')
  await goTo(page, 'Computes')
  await expect(page.getByRole('heading', { name: 'Computes' })).toBeVisible()
  await screenshot(page, 'computes')
  expect(errors).toEqual([])
})

test('everything can be reached by keyboard', async ({ page }) => {
  await signIn(page)
  await page.keyboard.press('Tab')
  await expect(page.getByRole('link', { name: 'Skip to content' })).toBeFocused()
  await page.getByRole('button', { name: 'New project' }).first().focus()
  await page.keyboard.press('Enter')
  await expect(page.getByRole('dialog', { name: 'New project' })).toBeVisible()
  await expect(page.getByLabel('Name')).toBeFocused()
  await page.keyboard.press('Escape')
  await expect(page.getByRole('dialog')).toHaveCount(0)
})
