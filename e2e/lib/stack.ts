import { execFileSync } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const ROOT = new URL('../..', import.meta.url).pathname

/** Away from the ports of an installation that may be running beside the tests. */
const PORT_BASE = Number(process.env.WEIR_E2E_PORT_BASE ?? 28400)

/** Starts a Weir of the journeys' own, and returns how to stop it; uses the one at WEIR_E2E_URL if given. */
export default function globalSetup(): (() => void) | undefined {
  if (process.env.WEIR_E2E_URL) return undefined
  const parent = mkdtempSync(join(tmpdir(), 'weir-e2e-'))
  chmodSync(parent, 0o755)
  const home = join(parent, 'home')
  const weir = (...args: string[]) =>
    execFileSync(join(ROOT, 'weir'), args, { env: { ...process.env, WEIR_HOME: home }, stdio: 'inherit', timeout: 300_000 })
  const stop = () => {
    weir('down')
    rmSync(parent, { recursive: true, force: true })
  }
  try {
    weir('up', '--port-base', String(PORT_BASE))
  } catch (error) {
    stop()
    throw error
  }
  process.env.WEIR_E2E_URL = `http://127.0.0.1:${String(PORT_BASE)}`
  process.env.WEIR_E2E_HOME = home
  return stop
}
