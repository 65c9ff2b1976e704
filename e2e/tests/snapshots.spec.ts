import { expect, type Page, test } from '@playwright/test'

import { call } from '../lib/api.ts'
import { baseUrl } from '../lib/env.ts'
import { expectAccessible, expectFits, screenshot, signIn, watchErrors } from '../lib/journey.ts'
import { type Project, runningProject } from '../lib/rollouts.ts'
import { sql } from '../lib/sql.ts'

const STEP = 90_000

async function idle(project: Project): Promise<void> {
  await expect(async () => {
    const { operations } = await call<{ operations: { status: string }[] }>('GET', `/projects/${project.id}/operations`)
    expect(operations.filter((each) => ['scheduling', 'running', 'cancelling'].includes(each.status))).toEqual([])
  }).toPass({ timeout: STEP, intervals: [300] })
}

const snapshots = (page: Page) => page.getByRole('table', { name: 'Snapshots' })

test('a snapshot is taken, scheduled, looked at and put in place, and its schema is compared', async ({ page }) => {
  test.setTimeout(480_000)
  const errors = watchErrors(page)
  await signIn(page)
  const project = await runningProject(`snap-${Date.now().toString(36).slice(-5)}`)
  const { uri } = await call<{ uri: string }>('GET', `/projects/${project.id}/connection_uri?role_name=app_owner&database_name=appdb`)
  await sql(uri, 'create table orders (id int primary key); insert into orders select generate_series(1, 100)')
  await idle(project)

  await page.goto(`${baseUrl()}/projects/${project.id}`)
  await page.getByRole('link', { name: 'Snapshots', exact: true }).click()
  await expect(page.getByRole('heading', { level: 1, name: 'Snapshots' })).toBeVisible()
  await page.getByRole('button', { name: 'New snapshot' }).click()
  await page.getByRole('dialog').getByLabel('Name').fill('before the change')
  await expectAccessible(page)
  await page.getByRole('button', { name: 'Take snapshot' }).click()
  await expect(page.getByRole('dialog')).toHaveCount(0, { timeout: STEP })
  const restore = page.getByRole('button', { name: 'Restore before the change' })
  await expect(restore).toBeEnabled({ timeout: STEP })

  await page.getByLabel('Take one').selectOption({ label: 'each week' })
  await page.getByLabel('On', { exact: true }).selectOption({ label: 'Sunday' })
  await page.getByRole('button', { name: 'Add to schedule' }).click()
  await expect(page.getByText('Each Sunday at 03:00 UTC')).toBeVisible()
  await expectAccessible(page)
  await expectFits(page)
  await screenshot(page, 'snapshots')

  await sql(uri, 'alter table orders add column note text; delete from orders where id > 1')
  await restore.click()
  const dialog = page.getByRole('dialog')
  await dialog.getByLabel('Name of the new branch').fill('look')
  await expectAccessible(page)
  await dialog.getByRole('button', { name: 'Make branch' }).click()
  await expect(dialog.getByText('look has the snapshot’s state.')).toBeVisible({ timeout: STEP })
  await dialog.getByRole('button', { name: 'Close' }).click()

  // A compute on it, and what differs from main.
  const { branches } = await call<{ branches: { id: string; name: string }[] }>('GET', `/projects/${project.id}/branches`)
  const look = branches.find((each) => each.name === 'look')?.id ?? ''
  await call('POST', `/projects/${project.id}/endpoints`, { endpoint: { branch_id: look, type: 'read_write' } })
  await idle(project)
  await page.getByRole('link', { name: project.name, exact: true }).click()
  await page.getByRole('link', { name: 'Compare schemas' }).click()
  await expect(page.getByText('From main to look: 2 lines go, 1 comes.')).toBeVisible({ timeout: STEP })
  // By keyboard: the part that scrolls takes the focus, and the branches change places.
  await page.getByRole('region', { name: /^Schema of main/ }).focus()
  await expect(page.getByRole('region', { name: /^Schema of main/ })).toBeFocused()
  await expectAccessible(page)
  await expectFits(page)
  await screenshot(page, 'schema-diff')

  await page.goBack()
  await page.getByRole('link', { name: 'Snapshots', exact: true }).click()
  await page.getByRole('button', { name: 'Put look in place of main' }).click()
  await expectAccessible(page)
  await page.getByRole('button', { name: 'Put it in place' }).click()
  await expect(page.getByRole('dialog')).toHaveCount(0, { timeout: STEP })
  await idle(project)
  await expect(async () => {
    expect(await sql(uri, 'select count(*) from orders')).toBe('100')
  }).toPass({ timeout: STEP })

  await page.getByRole('button', { name: 'Delete before the change' }).click()
  await page.getByLabel('Type before the change to confirm').fill('before the change')
  await page.getByRole('button', { name: 'Delete for good' }).click()
  await expect(page.getByRole('dialog')).toHaveCount(0, { timeout: STEP })
  await expect(snapshots(page)).toHaveCount(0)
  expect(errors).toEqual([])
})
