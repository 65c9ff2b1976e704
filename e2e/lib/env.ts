import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

function required(name: string): string {
  const value = process.env[name]
  if (!value) throw new Error(`${name} is not set; global set-up sets it when it starts the stack`)
  return value
}

export function baseUrl(): string {
  return required('WEIR_E2E_URL')
}

export function apiKey(): string {
  return readFileSync(join(required('WEIR_E2E_HOME'), 'secrets', 'api_key'), 'utf8').trim()
}

export function screenshotDir(): string {
  const directory = process.env.WEIR_E2E_SCREENSHOTS ?? 'test-results/screenshots'
  mkdirSync(directory, { recursive: true })
  return directory
}
