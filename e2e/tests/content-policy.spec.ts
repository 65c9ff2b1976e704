import { expect, type Page, test } from '@playwright/test'

import { baseUrl } from '../lib/env.ts'
import { goTo, signIn } from '../lib/journey.ts'
import { runningProject } from '../lib/rollouts.ts'

const PAGES = ['Projects', 'Computes', 'Rollouts', 'Fleet', 'Usage', 'Organisation', 'Audit'] as const

/** What the browser's own reports of the policy say, from the first script of each page on. */
async function watchViolations(page: Page): Promise<string[]> {
  const violations: string[] = []
  await page.exposeFunction('weirViolation', (text: string) => violations.push(text))
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => {
      const report = (globalThis as unknown as { weirViolation: (text: string) => void }).weirViolation
      report(`${location.pathname}: ${event.violatedDirective} forbids ${event.blockedURI} (${event.sourceFile}:${String(event.lineNumber)}) ${event.sample}`)
    })
  })
  return violations
}

test('the console keeps to its own content policy on each main page, with dialogs and charts', async ({ page }) => {
  test.setTimeout(300_000)
  const violations = await watchViolations(page)
  const answer = await page.goto(`${baseUrl()}/login`)
  const policy = answer?.headers()['content-security-policy'] ?? ''
  expect(policy).toContain("script-src 'self'")
  expect(policy).toContain("frame-ancestors 'none'")
  expect(policy).not.toContain('unsafe')
  await signIn(page)
  const project = await runningProject(`policy-${Date.now().toString(36).slice(-5)}`)
  for (const name of PAGES) {
    await goTo(page, name)
    await expect(page.getByRole('heading', { level: 1 })).toBeVisible()
    await page.waitForLoadState('networkidle')
  }

  // A dialog keeps the page behind it from scrolling, by a style element that needs the nonce.
  await goTo(page, 'Organisation')
  await page.getByRole('button', { name: 'New key' }).click()
  const dialog = page.getByRole('dialog', { name: 'New API key' })
  await dialog.getByLabel('Name').fill('never made')
  await expect(page.locator('body')).toHaveCSS('overflow-y', 'hidden')
  await page.keyboard.press('Escape')
  await expect(dialog).toBeHidden()

  await page.goto(`${baseUrl()}/account`)
  await expect(page.getByRole('table', { name: 'Sessions' })).toBeVisible()

  // A project with its quotas, a branch with its dialogs, a compute with its charts.
  await page.goto(`${baseUrl()}/projects/${project.id}`)
  await expect(page.getByRole('list', { name: 'Quotas of the project' })).toBeVisible()
  await page.getByRole('link', { name: 'main', exact: true }).first().click()
  await expect(page.getByRole('heading', { level: 1, name: 'main' })).toBeVisible()
  await page.goto(`${baseUrl()}/computes/${project.computeId}`)
  await expect(page.locator('canvas').first()).toBeVisible()
  await page.goto(`${baseUrl()}/rollouts/new`)
  await expect(page.getByRole('heading', { level: 1 })).toBeVisible()
  await page.goto(`${baseUrl()}/fleet/pushdown`)
  await expect(page.getByRole('heading', { level: 1 })).toBeVisible()
  await page.waitForLoadState('networkidle')
  expect(violations).toEqual([])

  // That a violation would have been seen.
  await page.evaluate(() => {
    const script = document.createElement('script')
    script.textContent = 'document.title = "taken over"'
    document.head.append(script)
  })
  await expect.poll(() => violations.length).toBe(1)
  expect(violations[0]).toContain('script-src')
  expect(await page.title()).toBe('Weir')
})

test('no page frames the console', async ({ page }) => {
  await page.goto('about:blank')
  await page.setContent(`<iframe src="${baseUrl()}/login"></iframe>`)
  // What a browser shows in place of a page that may not be framed.
  await expect.poll(() => page.frames().map((frame) => frame.url()).join(' ')).toContain('chrome-error://')
  await expect(page.frameLocator('iframe').getByLabel('Password')).toHaveCount(0)
})
