import { spawnSync } from 'node:child_process'
import { join } from 'node:path'

const ROOT = new URL('../..', import.meta.url).pathname

type Status = { processes: { name: string; pid: number }[] }

function pidOf(service: string): number {
  const home = process.env.WEIR_E2E_HOME
  if (!home) throw new Error('WEIR_E2E_HOME is not set: a service can only be stopped in a stack of this machine')
  // It ends with 1 where something is not healthy just now, and says all the same what runs.
  const asked = spawnSync(join(ROOT, 'weir'), ['status', '--json'], { env: { ...process.env, WEIR_HOME: home }, encoding: 'utf8', timeout: 60_000 })
  if (asked.status !== 0 && asked.status !== 1) throw new Error(`weir status ended with ${String(asked.status)}: ${asked.stderr}`)
  const found = (JSON.parse(asked.stdout) as Status).processes.find((each) => each.name === service)
  if (!found) throw new Error(`no process ${service} runs in ${home}`)
  return found.pid
}

/**
 * Makes a service stop answering without dying, as a host that hangs does, and returns what ends that. The supervisor
 * restarts a service that does not answer for a minute and a half, so it must be ended before.
 */
export function hang(service: string): () => void {
  const pid = pidOf(service)
  let hanging = true
  process.kill(pid, 'SIGSTOP')
  return () => {
    if (hanging) process.kill(pid, 'SIGCONT')
    hanging = false
  }
}
