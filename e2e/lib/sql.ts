import { spawn } from 'node:child_process'

/** Runs statements as a person with psql does, and returns what they print: rows alone, one a line. Throws what Postgres says. */
export function sql(uri: string, statements: string): Promise<string> {
  const child = spawn('psql', ['-X', '-q', '-A', '-t', '-v', 'ON_ERROR_STOP=1', '-v', 'VERBOSITY=verbose', '-c', statements, uri], { stdio: ['ignore', 'pipe', 'pipe'], timeout: 120_000 })
  let said = ''
  let complaints = ''
  child.stdout.on('data', (chunk: Buffer) => { said += chunk.toString() })
  child.stderr.on('data', (chunk: Buffer) => { complaints += chunk.toString() })
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (status) => {
      // Not the command: the address in it holds the password.
      if (status === 0) resolve(said.trim())
      else reject(new Error(`${statements}\n${complaints || `psql ended with ${String(status)}`}`))
    })
  })
}
