import { expect, type Page, test } from '@playwright/test'

import { call } from '../lib/api.ts'
import { apiKey, baseUrl } from '../lib/env.ts'
import { expectAccessible, expectFits, goTo, screenshot, signIn, watchErrors } from '../lib/journey.ts'
import { runningProject } from '../lib/rollouts.ts'
import { sql } from '../lib/sql.ts'

const STEP = 60_000

/** The secret of the dialog that shows it once. */
async function secretOf(page: Page, label: string): Promise<string> {
  const secret = await page.getByLabel(label, { exact: true }).innerText()
  await page.getByRole('button', { name: 'Done' }).click()
  await expect(page.getByRole('dialog')).toHaveCount(0)
  return secret
}

test('roles and databases are made, changed and deleted, and what was done is on record', async ({ page }) => {
  test.setTimeout(240_000)
  const errors = watchErrors(page)
  await signIn(page)
  const project = await runningProject(`roles-${Date.now().toString(36).slice(-5)}`)
  const { branches } = await call<{ branches: { id: string }[] }>('GET', `/projects/${project.id}/branches`)
  const branch = branches[0]?.id ?? ''
  await page.goto(`${baseUrl()}/projects/${project.id}/branches/${branch}`)
  const card = page.getByRole('region', { name: 'Roles and databases', exact: true })

  await card.getByRole('button', { name: 'New role' }).click()
  await page.getByRole('dialog').getByLabel('Name').fill('reporter')
  await expectAccessible(page)
  await page.getByRole('button', { name: 'Create role' }).click()
  const password = await secretOf(page, 'password of reporter')

  // As a client logs in with what the page has shown, once the compute knows the role.
  const { uri } = await call<{ uri: string }>(
    'GET',
    `/projects/${project.id}/connection_uri?role_name=app_owner&database_name=appdb`,
  )
  const as = (name: string, secret: string, database: string): string => {
    const target = new URL(uri)
    target.username = name
    target.password = secret
    target.pathname = `/${database}`
    return target.href
  }
  await expect(async () => {
    expect(await sql(as('reporter', password, 'appdb'), 'select current_user')).toBe('reporter')
  }).toPass({ timeout: STEP })

  await card.getByRole('button', { name: 'New database' }).click()
  await page.getByRole('dialog').getByLabel('Name').fill('reports')
  await page.getByRole('dialog').getByLabel('Owner').selectOption('reporter')
  await page.getByRole('button', { name: 'Create database' }).click()
  await expect(card.getByRole('button', { name: 'Delete database reports' })).toBeVisible()
  await expect(card.getByRole('button', { name: 'Delete role reporter' })).toBeDisabled()
  await expectAccessible(page)
  await expectFits(page)
  await screenshot(page, 'roles-and-databases')
  const owner = "select pg_get_userbyid(datdba) from pg_database where datname = 'reports'"
  await expect.poll(() => sql(uri, owner), { timeout: STEP }).toBe('reporter')

  await expect(async () => {
    await card.getByRole('button', { name: 'Change the owner of reports' }).click()
    await page.getByRole('dialog').getByLabel('Owner').selectOption('app_owner')
    await page.getByRole('button', { name: 'Change owner', exact: true }).click()
    await expect(page.getByRole('dialog')).toHaveCount(0)
  }).toPass({ timeout: STEP })
  await expect.poll(() => sql(uri, owner), { timeout: STEP }).toBe('app_owner')

  await card.getByRole('button', { name: 'Delete role reporter' }).click()
  await page.getByLabel('Type reporter to confirm').fill('reporter')
  await page.getByRole('button', { name: 'Delete for good' }).click()
  await expect(page.getByRole('dialog')).toHaveCount(0, { timeout: STEP })
  await expect(card.getByRole('button', { name: 'Delete role reporter' })).toHaveCount(0)

  await goTo(page, 'Audit')
  await page.getByLabel('Project', { exact: true }).fill(project.id)
  const log = page.getByRole('region', { name: 'Audit log' })
  for (const action of ['role.create', 'database.create', 'database.update', 'role.delete'])
    await expect(log.getByText(action, { exact: true }).first()).toBeVisible()
  await expect(log.getByText('branch/').first()).toBeVisible()
  expect(await log.innerText()).not.toContain(password)
  await expectAccessible(page)
  await expectFits(page)
  await screenshot(page, 'audit')
  expect(errors).toEqual([])
})

test('a key is shown once, works, and is refused when it is revoked', async ({ page }) => {
  const errors = watchErrors(page)
  await signIn(page)
  await goTo(page, 'Organisation')
  const name = `journey-${Date.now().toString(36)}`
  await page.getByRole('button', { name: 'New key' }).click()
  await page.getByRole('dialog').getByLabel('Name').fill(name)
  await page.getByRole('button', { name: 'Create key' }).click()
  const key = await secretOf(page, `key ${name}`)
  expect(key).not.toBe(apiKey())
  const status = async (): Promise<number> =>
    (await fetch(`${baseUrl()}/api/v2/projects`, { headers: { Authorization: `Bearer ${key}` } })).status
  expect(await status()).toBe(200)
  await expect(page.getByText(key)).toHaveCount(0)
  await expectAccessible(page)
  await expectFits(page)
  await screenshot(page, 'organisation-by-key')

  await page.getByRole('button', { name: `Revoke ${name}` }).click()
  await page.getByLabel(`Type ${name} to confirm`).fill(name)
  await page.getByRole('button', { name: 'Delete for good' }).click()
  // What is behind an open dialog is hidden from roles: only its end says that the key has gone.
  await expect(page.getByRole('dialog')).toHaveCount(0)
  await expect(page.getByRole('button', { name: `Revoke ${name}` })).toHaveCount(0)
  expect(await status()).toBe(401)
  expect(errors).toEqual([])
})
