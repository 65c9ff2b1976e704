import { expect, type Page, test } from '@playwright/test'

import { call } from '../lib/api.ts'
import { baseUrl } from '../lib/env.ts'
import { expectAccessible, expectFits, screenshot, signIn, watchErrors } from '../lib/journey.ts'
import { runningProject } from '../lib/rollouts.ts'
import { sql } from '../lib/sql.ts'

const STEP = 60_000
// Shorter than what the form offers, so that nobody waits a minute here.
const IDLE_SECONDS = 6

const compute = (page: Page, id: string) => page.getByRole('link', { name: id, exact: true }).locator('..')

test('a compute that nobody uses goes to sleep, and the next client wakes it', async ({ page }) => {
  test.setTimeout(240_000)
  const errors = watchErrors(page)
  await signIn(page)
  const project = await runningProject(`sleepy-${Date.now().toString(36).slice(-5)}`)
  const { uri } = await call<{ uri: string }>('GET', `/projects/${project.id}/connection_uri?role_name=app_owner&database_name=appdb`)
  await sql(uri, 'create table notes as select 42 as answer')

  await page.goto(`${baseUrl()}/projects/${project.id}`)
  const row = compute(page, project.computeId)

  // Rows of unlogged tables are lost only by somebody who says so.
  await sql(uri, 'create unlogged table cache as select generate_series(1, 1000) as n')
  await row.getByRole('button', { name: 'Suspend', exact: true }).click()
  const losing = page.getByRole('dialog', { name: 'Suspend and lose rows?' })
  await expect(losing).toContainText('appdb: public.cache')
  const lose = losing.getByRole('button', { name: 'Suspend and lose them' })
  await expect(lose).toBeDisabled()
  await losing.getByRole('checkbox').check()
  await expect(lose).toBeEnabled()
  await expectAccessible(page)
  await expectFits(page)
  await screenshot(page, 'unlogged-rows')
  await losing.getByRole('button', { name: 'Cancel' }).click()
  expect(await sql(uri, 'select count(*) from cache')).toBe('1000')
  await sql(uri, 'drop table cache')

  await row.getByRole('button', { name: 'Suspends when idle: never' }).click()
  const dialog = page.getByRole('dialog', { name: 'Suspend when idle' })
  await expect(dialog.getByRole('button', { name: 'Save' })).toBeDisabled()
  await dialog.getByLabel('Suspend without activity').selectOption({ label: 'after 5 min' })
  await expectAccessible(page)
  await expectFits(page)
  await screenshot(page, 'idle-time')
  await dialog.getByRole('button', { name: 'Save' }).click()
  await expect(row.getByRole('button', { name: 'Suspends when idle: after 5 min' })).toBeVisible()

  await call('PATCH', `/projects/${project.id}/endpoints/${project.computeId}`, {
    endpoint: { suspend_timeout_seconds: IDLE_SECONDS },
  })
  await expect(row.getByRole('button', { name: `Suspends when idle: after ${String(IDLE_SECONDS)} s` })).toBeVisible()
  await expect(row.getByRole('button', { name: 'Start' })).toBeVisible({ timeout: STEP })
  await screenshot(page, 'idle-suspended')

  // As any client, by what the page says: it waits for the start and knows nothing of it.
  await page.getByRole('button', { name: 'Show connection string' }).click()
  const connect = page.getByRole('region', { name: 'Connect' })
  await expect(connect.getByRole('code')).toHaveText(uri)
  await connect.getByLabel(/^Pooled/).check()
  await expect(connect.getByRole('code')).toContainText('-pooler')
  const pooled = await connect.getByRole('code').innerText()
  await connect.getByLabel('For').selectOption({ label: 'psql' })
  await expect(connect.getByRole('code')).toHaveText(`psql "${pooled}"`)
  await expectAccessible(page)
  await expectFits(page)
  await screenshot(page, 'connect')
  expect(await sql(pooled, 'select answer from notes')).toBe('42')
  await expect(row.getByRole('button', { name: 'Suspend', exact: true })).toBeVisible({ timeout: STEP })
  // The browser's own word of the suspend that was refused.
  expect(errors).toEqual([expect.stringMatching(/409 .*\/suspend$/)])
})
