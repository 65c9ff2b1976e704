import { AxeBuilder } from '@axe-core/playwright'
import { expect, type Page } from '@playwright/test'

import { apiKey, baseUrl, screenshotDir } from './env.ts'

export async function signIn(page: Page): Promise<void> {
  await page.goto(`${baseUrl()}/login`)
  await page.getByRole('button', { name: 'Use an API key' }).click()
  await page.getByLabel('API key').fill(apiKey())
  await page.getByRole('button', { name: 'Sign in', exact: true }).click()
  await expect(page.getByRole('heading', { name: 'Projects' })).toBeVisible()
}

/** Goes to a page of the console by its main navigation. */
export async function goTo(page: Page, name: 'Projects' | 'Computes' | 'Rollouts' | 'Fleet' | 'Usage' | 'Organisation' | 'Audit'): Promise<void> {
  await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name, exact: true }).click()
}

/** No accessibility finding that is serious or critical. */
export async function expectAccessible(page: Page): Promise<void> {
  const { violations } = await new AxeBuilder({ page }).analyze()
  const grave = violations.filter((violation) => violation.impact === 'serious' || violation.impact === 'critical')
  expect(grave.map((violation) => `${violation.id}: ${violation.nodes.map((node) => node.target.join(' ')).join(', ')}`)).toEqual([])
}

/** The page as a person sees it, at both widths and in both themes. */
export async function screenshot(page: Page, name: string): Promise<void> {
  for (const width of [1440, 400]) {
    await page.setViewportSize({ width, height: 900 })
    for (const theme of ['light', 'dark']) {
      await page.evaluate((dark) => document.documentElement.classList.toggle('dark', dark), theme === 'dark')
      await page.screenshot({ path: `${screenshotDir()}/${name}-${String(width)}-${theme}.png`, fullPage: true, animations: 'disabled' })
    }
  }
  await page.setViewportSize({ width: 1440, height: 900 })
  await page.evaluate(() => document.documentElement.classList.remove('dark'))
}

/** What fits a desktop screen of that height, for the pictures in docs/images. */
export async function picture(page: Page, name: string, height = 900): Promise<void> {
  await page.setViewportSize({ width: 1440, height })
  await page.screenshot({ path: `${screenshotDir()}/picture-${name}.png`, animations: 'disabled' })
}

/** Nothing pushes the page wider than a telephone, also after a window has become as narrow: charts follow in a moment. */
export async function expectFits(page: Page): Promise<void> {
  await page.setViewportSize({ width: 400, height: 900 })
  const beyond = () => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
  await expect.poll(beyond, { message: 'pixels beyond 400' }).toBeLessThanOrEqual(0)
  await page.setViewportSize({ width: 1440, height: 900 })
}

/** Gathers every error the browser reports, with the path of what it failed to load: a journey expects none but its own. */
export function watchErrors(page: Page): string[] {
  const errors: string[] = []
  page.on('pageerror', (error) => errors.push(error.message))
  page.on('console', (message) => {
    if (message.type() !== 'error') return
    const { url } = message.location()
    errors.push(URL.canParse(url) ? `${message.text()} ${new URL(url).pathname}` : message.text())
  })
  return errors
}
