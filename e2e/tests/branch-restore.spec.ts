import { expect, type Page, test } from '@playwright/test'

import { call } from '../lib/api.ts'
import { baseUrl } from '../lib/env.ts'
import { expectAccessible, expectFits, screenshot, picture, signIn, watchErrors } from '../lib/journey.ts'
import { type Project, runningProject } from '../lib/rollouts.ts'
import { sql } from '../lib/sql.ts'

const STEP = 90_000

async function uriOf(project: Project): Promise<string> {
  const { uri } = await call<{ uri: string }>('GET', `/projects/${project.id}/connection_uri?role_name=app_owner&database_name=appdb`)
  return uri
}

const tree = (page: Page) => page.getByRole('list', { name: 'Branches' })
const row = (page: Page, name: string) => tree(page).getByRole('listitem').filter({ has: page.getByRole('link', { name, exact: true }) })

async function openProject(page: Page, project: Project): Promise<void> {
  await page.goto(`${baseUrl()}/projects/${project.id}`)
  await expect(page.getByRole('heading', { level: 1, name: project.name })).toBeVisible()
}

/** Until nothing is on its way in the project: changes are refused before. */
async function idle(project: Project): Promise<void> {
  await expect(async () => {
    const { operations } = await call<{ operations: { status: string }[] }>('GET', `/projects/${project.id}/operations`)
    expect(operations.filter((each) => ['scheduling', 'running', 'cancelling'].includes(each.status))).toEqual([])
  }).toPass({ timeout: STEP, intervals: [300] })
}

async function branchAt(page: Page, parent: string, name: string, from: string, at?: string): Promise<void> {
  await row(page, parent).getByRole('button', { name: 'Branch', exact: true }).click()
  const dialog = page.getByRole('dialog', { name: `Branch from ${parent}` })
  await dialog.getByLabel('Name').fill(name)
  await dialog.getByLabel('Start from').selectOption({ label: from })
  if (at !== undefined) await dialog.getByLabel('LSN', { exact: true }).fill(at)
  await dialog.getByLabel('With a read-write compute').uncheck()
  await dialog.getByRole('button', { name: 'Create branch' }).click()
  await expect(row(page, name).getByText('ready', { exact: true })).toBeVisible({ timeout: STEP })
}

test('what was deleted by mistake comes back at the same address, and what replaced it stays as a branch', async ({ page }) => {
  test.setTimeout(480_000)
  const errors = watchErrors(page)
  await signIn(page)
  const project = await runningProject(`shop-${Date.now().toString(36).slice(-5)}`)
  const uri = await uriOf(project)
  await sql(uri, "create table orders (id int primary key, what text); insert into orders select n, 'order ' || n from generate_series(1, 1000) n")
  const good = await sql(uri, 'select pg_current_wal_insert_lsn()')
  await idle(project)

  await openProject(page, project)
  await branchAt(page, 'main', 'side', 'A WAL position (LSN)', good)
  await idle(project)
  await sql(uri, 'delete from orders where id > 10')
  expect(await sql(uri, 'select count(*) from orders')).toBe('10')

  await row(page, 'main').getByRole('link', { name: 'main', exact: true }).click()
  await expect(page.getByRole('heading', { level: 1, name: 'main' })).toBeVisible()
  await expect(page.getByRole('region', { name: 'Branches made from it' }).getByRole('link', { name: 'side' })).toBeVisible()
  await expectAccessible(page)
  await expectFits(page)
  await screenshot(page, 'branch')

  await page.getByRole('button', { name: 'Restore', exact: true }).click()
  const dialog = page.getByRole('dialog')
  const confirm = dialog.getByRole('button', { name: 'Restore main' })
  await expect(confirm).toBeDisabled()
  // Storage is asked before anything is done, and what it refuses cannot be asked for.
  await dialog.getByLabel('Which state').selectOption({ label: 'A WAL position (LSN)' })
  await dialog.getByLabel('LSN', { exact: true }).fill('0/1')
  await expect(dialog.getByRole('alert')).toContainText('Older than the history')
  await dialog.getByLabel('LSN', { exact: true }).fill('FF/1')
  await expect(dialog.getByRole('alert')).toContainText('ahead of branch')
  await expect(confirm).toBeDisabled()
  // By keyboard, on the line of its history; then the very state, which is where the other branch was made.
  await dialog.getByRole('slider', { name: 'Moment' }).press('ArrowLeft')
  await expect(dialog.getByLabel(/^Time/)).not.toHaveValue('')
  await dialog.getByRole('button', { name: 'side' }).click()
  await expect(dialog.getByText('Everything committed by')).toBeVisible()
  await expect(dialog.getByText(`${project.computeId} stops`)).toBeVisible()
  await dialog.getByLabel('Keep what main is now as').fill('after the accident')
  await expect(dialog.getByText('stays as branch “after the accident”')).toBeVisible()
  await expectAccessible(page)
  await picture(page, 'restore', 1020)
  await screenshot(page, 'branch-restore')
  await confirm.click()
  await expect(dialog.getByText('main has the state asked for.')).toBeVisible({ timeout: STEP })
  await expect(dialog.getByRole('list', { name: 'Progress' }).getByText('finished', { exact: true })).toHaveCount(2)
  await screenshot(page, 'branch-restored')
  await dialog.getByRole('button', { name: 'Close' }).click()
  await idle(project)
  expect(await sql(uri, 'select count(*) from orders')).toBe('1000')

  await openProject(page, project)
  await expect(row(page, 'after the accident')).toBeVisible()
  await expect(row(page, 'main').getByText('active', { exact: true })).toBeVisible({ timeout: STEP })
  // The default branch is below it now, so it cannot go; one with a branch of its own goes with that, once both are named.
  await expect(row(page, 'after the accident').getByRole('button', { name: 'Delete' })).toBeDisabled()
  await branchAt(page, 'side', 'side of side', 'Now')
  await idle(project)
  await row(page, 'side').getByRole('button', { name: 'Delete' }).click()
  await expect(dialog.getByRole('list', { name: 'What goes' }).getByRole('listitem')).toHaveCount(2)
  await expect(dialog.getByRole('button', { name: 'Delete 2 branches' })).toBeDisabled()
  await expectAccessible(page)
  await screenshot(page, 'branch-delete')
  await dialog.getByLabel('Type side to confirm').fill('side')
  await dialog.getByRole('button', { name: 'Delete 2 branches' }).click()
  await expect(tree(page).getByRole('link')).toHaveText(['after the accident', 'main', project.computeId], { timeout: STEP })
  // The browser reports what storage was asked in vain. A compute that restarts for the restore cannot say what its roles
  // have chosen, and a console that had not yet seen it stop may have asked.
  const whileItRestarts = new RegExp(`503 .*/computes/${project.computeId}/durability$`)
  expect(errors.filter((each) => !whileItRestarts.test(each))).toEqual([expect.stringMatching(/400 .*\/history\/point$/)])
})

test('a quota is shown, reached and raised; a shorter history is confirmed by name', async ({ page }) => {
  test.setTimeout(480_000)
  const errors = watchErrors(page)
  await signIn(page)
  const project = await runningProject(`quota-${String(Date.now())}`)
  const uri = await uriOf(project)
  await idle(project)
  await openProject(page, project)
  const setQuota = async (amount: string) => {
    await page.getByRole('button', { name: 'Quota', exact: true }).click()
    const dialog = page.getByRole('dialog', { name: 'Storage quota' })
    await dialog.getByLabel('Limit the data of each branch').check()
    await dialog.getByLabel('Quota of each branch').fill(amount)
    await dialog.getByLabel('Unit').selectOption('MiB')
    await screenshot(page, 'quota')
    await dialog.getByRole('button', { name: 'Set quota' }).click()
    await expect(dialog).toHaveCount(0)
    await idle(project)
  }
  await setQuota('40')
  const meter = page.getByRole('meter', { name: 'Quota of main' })
  await expect(meter).toHaveAttribute('aria-valuetext', /of 40 MiB/)
  const grow = 'insert into notes select n, repeat(md5(n::text), 20) from generate_series(1, 60000) n'
  await sql(uri, 'create table notes (id int, what text)')
  await expect(sql(uri, grow)).rejects.toThrow(/53100/)
  await expect(meter).toHaveAttribute('aria-valuenow', '100', { timeout: STEP })
  await expect(page.getByText('full: takes no more data')).toBeVisible()
  await expectAccessible(page)
  await expectFits(page)
  await screenshot(page, 'project-full')
  await setQuota('200')
  await sql(uri, grow)
  expect(await sql(uri, 'select count(*) from notes')).toBe('60000')
  await expect(meter).toHaveAttribute('aria-valuetext', /of 200 MiB/)

  await page.getByRole('button', { name: 'History window' }).click()
  const dialog = page.getByRole('dialog', { name: 'History window' })
  await dialog.getByLabel('Keep history for').fill('1')
  const shorten = dialog.getByRole('button', { name: 'Shorten and drop history' })
  await expect(shorten).toBeDisabled()
  await expect(dialog.getByText('is dropped for good')).toBeVisible()
  await expectAccessible(page)
  await screenshot(page, 'history-window')
  await dialog.getByLabel(`Type ${project.name} to confirm`).fill(project.name)
  await shorten.click()
  await expect(dialog).toHaveCount(0)
  await idle(project)
  const { project: changed } = await call<{ project: { history_retention_seconds: number } }>('GET', `/projects/${project.id}`)
  expect(changed.history_retention_seconds).toBe(86_400)
  await expect(page.getByText('1 d', { exact: true })).toBeVisible()
  // A quota so near ends the compute's run, and for a second nobody can say what its roles have chosen.
  const whileItRestarts = new RegExp(`503 .*/computes/${project.computeId}/durability$`)
  expect(errors.filter((each) => !whileItRestarts.test(each))).toEqual([])
})
