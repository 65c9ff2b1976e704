import { expect, type Page, test } from '@playwright/test'

import { baseUrl } from '../lib/env.ts'
import { expectAccessible, expectFits, goTo, screenshot, watchErrors } from '../lib/journey.ts'
import { enterPassword, makePerson, nextTotp, signInAs, totp } from '../lib/people.ts'

/** A page as it is expected of each: nothing grave for assistive technology, narrow enough, and its pictures. */
async function inspect(page: Page, name: string): Promise<void> {
  await expectAccessible(page)
  await expectFits(page)
  await screenshot(page, name)
}

/** What is refused on purpose: signing in without what it takes, and asking with a session that has ended. */
const EXPECTED = /status of 401 .*\/api\/v2\/auth\//

/** Sets a second factor up on the account's page; returns its secret and the recovery codes. */
async function setUpSecondFactor(page: Page, password: string): Promise<{ secret: string; recovery: string[] }> {
  await page.getByRole('button', { name: 'Set up second factor' }).click()
  await page.getByLabel('Your password').fill('not the password')
  await page.getByRole('button', { name: 'Continue' }).click()
  await expect(page.getByRole('alert')).toContainText('not right')
  await expectAccessible(page)
  await page.getByLabel('Your password').fill(password)
  await page.getByRole('button', { name: 'Continue' }).click()
  const secret = await page.getByLabel('secret', { exact: true }).innerText()
  await inspect(page, 'second-factor')
  await page.getByRole('textbox', { name: 'Code' }).fill(totp(secret, Date.now()))
  await page.getByRole('button', { name: 'Confirm' }).click()
  const codes = page.getByRole('list', { name: 'Recovery codes' })
  await expect(codes.getByRole('listitem')).toHaveCount(10)
  const recovery = await codes.getByRole('listitem').allInnerTexts()
  await inspect(page, 'recovery-codes')
  await page.keyboard.press('Escape')
  await expect(codes).toBeVisible()
  await page.getByRole('button', { name: 'I have kept them' }).click()
  await expect(page.getByRole('dialog')).toHaveCount(0)
  return { secret, recovery }
}

/** Invites on the organisation's page and returns the links that its dialog shows, by email. */
async function invite(page: Page, emails: string[], role: string): Promise<Map<string, string>> {
  await page.getByRole('button', { name: 'Invite people' }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByLabel('Emails').fill(emails.join('\n'))
  await dialog.getByLabel('Role').selectOption(role)
  await dialog.getByRole('button', { name: /^Make/ }).click()
  await expect(dialog.getByRole('list', { name: 'Links' }).getByRole('listitem')).toHaveCount(emails.length)
  const links = new Map<string, string>()
  for (const email of emails) links.set(email, await dialog.getByLabel(`link for ${email}`, { exact: true }).innerText())
  return links
}

test('an owner invites people, who come by their links, and takes an invitation back', async ({ page, browser }) => {
  const errors = watchErrors(page)
  const run = Date.now().toString(36)
  const owner = makePerson(`owner-${run}@example.org`, 'Owner', 'owner')
  const [comes, stays] = [`comes-${run}@example.org`, `stays-${run}@example.org`]
  await signInAs(page, owner)
  await goTo(page, 'Organisation')
  const open = page.getByRole('table', { name: 'Open invitations' })

  // By the keyboard alone, to the field and back.
  const button = page.getByRole('button', { name: 'Invite people' })
  await button.focus()
  await page.keyboard.press('Enter')
  const dialog = page.getByRole('dialog')
  await expect(dialog.getByLabel('Emails')).toBeFocused()
  await page.keyboard.type(`${owner.email} nonsense`)
  await dialog.getByRole('button', { name: 'Make 2 links' }).click()
  await expect(dialog.getByRole('alert')).toContainText('Not an email: nonsense')
  await inspect(page, 'invite-refused')
  await page.keyboard.press('Escape')
  await expect(dialog).toHaveCount(0)
  await expect(button).toBeFocused()

  const links = await invite(page, [comes, stays], 'member')
  await inspect(page, 'invite-links')
  await page.keyboard.press('Escape')
  await dialog.getByRole('button', { name: 'I have the links' }).click()
  await expect(dialog).toHaveCount(0)
  await expect(button).toBeFocused()
  await expect(open.getByRole('row', { name: comes })).toContainText(`by ${owner.email}`)
  await expect(open.getByRole('row', { name: comes })).toContainText('in 7 d')
  await inspect(page, 'invitations')

  const theirs = await (await browser.newContext()).newPage()
  const errorsOfTheirs = watchErrors(theirs)
  await theirs.goto(links.get(comes) ?? '')
  await theirs.getByLabel('Name').fill('Comes')
  await theirs.getByLabel('Password').fill(`long enough ${run}`)
  await theirs.getByRole('button', { name: 'Make an account and accept' }).click()
  await expect(theirs.getByRole('heading', { level: 1, name: 'Projects' })).toBeVisible()
  await goTo(theirs, 'Organisation')
  await expect(theirs.getByRole('button', { name: 'Invite people' })).toBeDisabled()
  await expect(theirs.getByRole('table', { name: 'Open invitations' })).toHaveCount(0)
  await inspect(theirs, 'invitations-member')
  await theirs.context().close()

  await page.reload()
  await expect(page.getByRole('table', { name: 'Members' }).getByRole('row', { name: comes })).toContainText('member')
  await expect(open.getByRole('row', { name: comes })).toHaveCount(0)
  await open.getByRole('button', { name: `Revoke the invitation of ${stays}` }).click()
  await inspect(page, 'invitation-revoke')
  await dialog.getByRole('button', { name: 'Revoke' }).click()
  await expect(dialog).toHaveCount(0)
  await expect(open.getByRole('row', { name: stays })).toHaveCount(0)

  const late = await (await browser.newContext()).newPage()
  await late.goto(links.get(stays) ?? '')
  await late.getByLabel('Password').fill(`long enough ${run}`)
  await late.getByRole('button', { name: 'Make an account and accept' }).click()
  await expect(late.getByRole('alert')).toContainText('was taken back')
  await late.context().close()
  expect([...errors, ...errorsOfTheirs].filter((error) => !EXPECTED.test(error))).toEqual([])
})

test('a person signs in with a second factor, changes a role, and ends a session', async ({ page, browser }) => {
  const errors = watchErrors(page)
  const run = Date.now().toString(36)
  const ada = makePerson(`ada-${run}@example.org`, 'Ada', 'owner')
  const bob = makePerson(`bob-${run}@example.org`, 'Bob', 'viewer')

  await page.goto(`${baseUrl()}/account`)
  await expect(page).toHaveURL(/\/login/)
  await inspect(page, 'sign-in')
  await enterPassword(page, { ...ada, password: 'not the password' })
  await expect(page.getByRole('alert')).toContainText('The email or the password is not right.')
  await inspect(page, 'sign-in-refused')
  await signInAs(page, ada)

  await page.getByRole('link', { name: `Your account, ${ada.email}` }).click()
  await expect(page.getByRole('heading', { level: 1, name: 'Your account' })).toBeVisible()
  const { secret, recovery } = await setUpSecondFactor(page, ada.password)
  await expect(page.getByRole('button', { name: 'End second factor' })).toBeVisible()

  await page.getByRole('button', { name: 'Sign out' }).click()
  await expect(page).toHaveURL(/\/login/)
  await enterPassword(page, ada)
  await expect(page.getByRole('textbox', { name: 'Code' })).toBeFocused()
  await page.keyboard.type('000000')
  await page.keyboard.press('Enter')
  await expect(page.getByRole('alert')).toContainText('counts once')
  await inspect(page, 'sign-in-code')
  await page.getByRole('textbox', { name: 'Code' }).fill(nextTotp(secret))
  await page.keyboard.press('Enter')
  await expect(page.getByRole('heading', { level: 1, name: 'Projects' })).toBeVisible()

  // Who reads sees why nothing can be changed, until the role is another one.
  const bobs = await (await browser.newContext()).newPage()
  await signInAs(bobs, bob)
  await goTo(bobs, 'Organisation')
  const refused = bobs.getByRole('button', { name: 'Add member' })
  await expect(refused).toBeDisabled()
  await expect(refused).toHaveAttribute('title', /You are a viewer here/)
  await inspect(bobs, 'organisation-viewer')
  await goTo(bobs, 'Audit')
  await expect(bobs.getByRole('heading', { level: 1, name: 'Audit log' })).toBeVisible()
  await expect(bobs.getByText('You are a viewer here.')).toBeVisible()

  await goTo(page, 'Organisation')
  const members = page.getByRole('table', { name: 'Members' })
  await expect(members.getByRole('row', { name: ada.email })).toContainText('on')
  await page.getByRole('button', { name: `Change the role of ${bob.email}` }).click()
  const dialog = page.getByRole('dialog')
  await dialog.getByLabel('Role').selectOption('admin')
  await inspect(page, 'member-role')
  await dialog.getByRole('button', { name: 'Change role' }).click()
  await expect(dialog).toHaveCount(0)
  await expect(members.getByRole('row', { name: bob.email })).toContainText('admin')
  await expect(page.getByRole('list', { name: 'Quotas of the account' })).toBeVisible()
  await inspect(page, 'organisation')
  await bobs.reload()
  await goTo(bobs, 'Organisation')
  await expect(refused).toBeEnabled()
  await bobs.context().close()

  // The same person elsewhere, by a recovery code; that session ends from here.
  const elsewhere = await (await browser.newContext()).newPage()
  await enterPassword(elsewhere, ada)
  await elsewhere.getByRole('button', { name: 'Use a recovery code' }).click()
  await elsewhere.getByLabel('Recovery code').fill(recovery[0] ?? '')
  await elsewhere.keyboard.press('Enter')
  await expect(elsewhere.getByRole('heading', { level: 1, name: 'Projects' })).toBeVisible()
  await page.getByRole('link', { name: `Your account, ${ada.email}` }).click()
  const sessions = page.getByRole('table', { name: 'Sessions' })
  await expect(sessions.getByRole('row')).toHaveCount(3)
  await expect(sessions.getByRole('button', { name: /^End the session/, disabled: true })).toHaveCount(1)
  await inspect(page, 'account')
  await sessions.getByRole('button', { name: /^End the session/, disabled: false }).click()
  await expect(sessions.getByRole('row')).toHaveCount(2)
  await elsewhere.reload()
  await expect(elsewhere).toHaveURL(/\/login/)
  await elsewhere.context().close()

  await goTo(page, 'Audit')
  await page.getByLabel('Kind').selectOption('member')
  await page.getByLabel('Resource').fill(`user/${bob.email}`)
  await inspect(page, 'audit-filtered')
  await page.getByRole('button', { name: /^Show entry .* member.update/ }).click()
  const changed = page.getByRole('table', { name: 'Before and after' })
  await expect(changed.getByRole('row').last()).toContainText(/role\s*viewer\s*admin/)
  await inspect(page, 'audit-entry')
  await page.keyboard.press('Escape')
  await expect(changed).toHaveCount(0)
  expect(errors.filter((error) => !EXPECTED.test(error))).toEqual([])
})
