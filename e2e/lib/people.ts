import { execFileSync } from 'node:child_process'
import { createHmac, randomUUID } from 'node:crypto'
import { join } from 'node:path'

import { expect, type Page } from '@playwright/test'

import { baseUrl } from './env.ts'

const ROOT = new URL('../..', import.meta.url).pathname

/** The organisation that the installation's own key is of. */
export const HOME_ORGANIZATION = 'admin'

export type Person = { email: string; password: string }

/** Makes a person by `weir-admin`, which is first on the PATH that `make test` gives. The password goes by standard input. */
export function makePerson(email: string, name: string, role: 'viewer' | 'member' | 'admin' | 'owner'): Person {
  const password = randomUUID()
  const command = 'eval "$("$0" env)" && exec weir-admin user create "$1" --name "$2" --organization "$3" --role "$4"'
  execFileSync('sh', ['-c', command, join(ROOT, 'weir'), email, name, HOME_ORGANIZATION, role], {
    env: { ...process.env, WEIR_HOME: process.env.WEIR_E2E_HOME },
    input: `${password}\n`,
    stdio: ['pipe', 'ignore', 'inherit'],
    timeout: 60_000,
  })
  return { email, password }
}

/** Types email and password on the page for signing in, and sends them by Enter; what comes then is the caller's to expect. */
export async function enterPassword(page: Page, { email, password }: Person): Promise<void> {
  await page.goto(`${baseUrl()}/login`)
  await page.getByLabel('Email').fill(email)
  await page.keyboard.press('Tab')
  await expect(page.getByLabel('Password')).toBeFocused()
  await page.keyboard.type(password)
  await page.keyboard.press('Enter')
}

export async function signInAs(page: Page, person: Person): Promise<void> {
  await enterPassword(page, person)
  await expect(page.getByRole('heading', { level: 1, name: 'Projects' })).toBeVisible()
}

const BASE32 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'
const STEP_MS = 30_000

/** The code of TOTP (RFC 6238: SHA-1, six digits, 30 s) that an authenticator with this secret shows at a moment, in ms. */
export function totp(secret: string, at: number): string {
  const bits = [...secret.replaceAll(/[\s=]/g, '')].map((digit) => BASE32.indexOf(digit).toString(2).padStart(5, '0')).join('')
  const key = Buffer.from((bits.match(/.{8}/g) ?? []).map((byte) => parseInt(byte, 2)))
  const counter = Buffer.alloc(8)
  counter.writeBigUInt64BE(BigInt(Math.floor(at / STEP_MS)))
  const mac = createHmac('sha1', key).update(counter).digest()
  const offset = (mac.at(-1) ?? 0) & 15
  return String((mac.readUInt32BE(offset) & 0x7fffffff) % 1_000_000).padStart(6, '0')
}

/** The code of the step after this one: Weir takes it, for clocks that differ, and each code once. */
export const nextTotp = (secret: string): string => totp(secret, Date.now() + STEP_MS)
