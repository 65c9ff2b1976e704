import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { promisify } from 'node:util'

const run = promisify(execFile)
const TPROC_C = new URL('../../bench/tproc-c/run.py', import.meta.url).pathname

/** The control plane's Python, first on the PATH that `make test` gives; see `scripts/test`. */
const PYTHON = 'python'

/** Loads the demo's workload, one warehouse of about 100 MB, into a database. */
export async function loadTprocC(uri: string): Promise<void> {
  await run(PYTHON, [TPROC_C, 'load', uri], { timeout: 240_000 })
}

/** Throws, naming them, when a consistency condition of the workload does not hold. */
export async function checkTprocC(uri: string): Promise<void> {
  await run(PYTHON, [TPROC_C, 'check', uri], { timeout: 60_000 })
}

export type Driven = { transactions: number; failed: number; aborted_clients: number; nopm: number; p50_ms: number; p99_ms: number }

/** Drives the workload's standard mix at a fixed rate, for a bounded time; `stop` ends it and gives its figures. */
export function driveTprocC(uri: string, seconds: number, rate = 6) {
  const child: ChildProcess = spawn(PYTHON, [TPROC_C, 'drive', uri, `--seconds=${String(seconds)}`, `--rate=${String(rate)}`], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  let complaints = ''
  child.stdout?.on('data', (chunk: Buffer) => { output += chunk.toString() })
  child.stderr?.on('data', (chunk: Buffer) => { complaints += chunk.toString() })
  const ended = new Promise<number | null>((resolve) => { child.on('close', resolve) })
  return {
    async stop(): Promise<Driven> {
      child.kill('SIGINT')
      await ended
      const last = output.trim().split('\n').at(-1) ?? ''
      if (!last.startsWith('{')) throw new Error(`the load ended without its figures: ${output}${complaints}`)
      return JSON.parse(last) as Driven
    },
  }
}
