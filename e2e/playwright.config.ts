import { defineConfig } from '@playwright/test'

/**
 * Journeys run against a real stack: the one at WEIR_E2E_URL when given, else one that global set-up starts
 * below a temporary WEIR_HOME and stops again. One worker: the journeys share that stack and its two cores.
 */
export default defineConfig({
  testDir: 'tests',
  outputDir: 'test-results',
  workers: 1,
  retries: 0,
  timeout: 900_000,
  expect: { timeout: 30_000 },
  reporter: [['list']],
  globalSetup: './lib/stack.ts',
  use: {
    viewport: { width: 1440, height: 900 },
    screenshot: 'only-on-failure',
    trace: 'retain-on-failure',
    launchOptions: {
      executablePath: process.env.WEIR_CHROMIUM ?? '/usr/bin/chromium',
      args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
    },
  },
})
