// How long pages of the console take, in a headless Chromium: `node console_time.mjs E2E_DIRECTORY < request.json`.
// Request: {url, api_key, pages: [{name, path, heading}]}. Answer: [{name, path, ms: [...], requests, bytes}].
//
// A page is there when its heading is visible and every API request it made has been answered for 150 ms; its time
// runs from the navigation until the last of these. Each page is opened five times with a warm browser cache, as a
// person's second visit would be.
import { createRequire } from 'node:module'
import { join, resolve } from 'node:path'

const LOADS = 5
const QUIET_MS = 150
const PATIENCE_MS = 30_000

const require = createRequire(join(resolve(process.argv[2]), 'package.json'))
const { chromium } = require('playwright-core')

let text = ''
for await (const chunk of process.stdin) text += chunk
const { url, api_key: apiKey, pages } = JSON.parse(text)

const browser = await chromium.launch({
  executablePath: process.env.WEIR_CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
})
try {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } })
  const page = await context.newPage()
  await page.goto(`${url}/login`)
  await page.getByLabel('API key').fill(apiKey)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('heading', { level: 1 }).waitFor({ timeout: PATIENCE_MS })
  await page.waitForURL((at) => !at.pathname.startsWith('/login'), { timeout: PATIENCE_MS })
  const answers = []
  for (const wanted of pages) answers.push(await timed(page, wanted))
  process.stdout.write(JSON.stringify(answers))
} finally {
  await browser.close()
}

async function timed(page, { name, path, heading }) {
  const answer = { name, path, ms: [], requests: 0, bytes: 0 }
  for (let load = 0; load < LOADS; load++) {
    const pending = new Set()
    let lastDone = 0
    let failed = null
    answer.requests = 0
    answer.bytes = 0
    const began = (request) => {
      if (new URL(request.url()).pathname.startsWith('/api/')) pending.add(request)
    }
    // Requests of the page before, which end as it goes, are not in the set.
    const ended = async (request) => {
      if (!pending.has(request)) return
      const at = performance.now()
      const response = await request.response()
      // None: the page itself gave the request up.
      if (response !== null) {
        if (response.status() >= 400) failed = `${request.url()} answered ${response.status()}`
        else answer.bytes += (await request.sizes()).responseBodySize
        answer.requests++
        lastDone = Math.max(lastDone, at)
      }
      pending.delete(request)
    }
    page.on('request', began)
    page.on('requestfinished', ended)
    page.on('requestfailed', ended)
    const start = performance.now()
    await page.goto(`${url}${path}`)
    await page.getByRole('heading', { level: 1, name: heading }).waitFor({ timeout: PATIENCE_MS })
    const shown = performance.now()
    while (pending.size > 0 || performance.now() - Math.max(shown, lastDone) < QUIET_MS) {
      if (performance.now() - start > PATIENCE_MS) throw new Error(`${path}: ${pending.size} requests unanswered after ${PATIENCE_MS} ms`)
      await page.waitForTimeout(10)
    }
    // One frame more: the last answer is painted.
    const beforeFrame = performance.now()
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))))
    const frame = performance.now() - beforeFrame
    page.off('request', began)
    page.off('requestfinished', ended)
    page.off('requestfailed', ended)
    if (failed) throw new Error(`${path}: ${failed}`)
    answer.ms.push(Math.round(Math.max(shown, lastDone) - start + frame))
  }
  return answer
}
