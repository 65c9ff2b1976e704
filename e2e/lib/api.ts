import { apiKey, baseUrl } from './env.ts'

/** One call. 423 means that the project is busy with an earlier request: it is repeated for a while. */
export async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  const deadline = Date.now() + 30_000
  for (;;) {
    const answer = await fetch(`${baseUrl()}/api/v2${path}`, {
      method,
      headers: { authorization: `Bearer ${apiKey()}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    if (answer.ok) return (await answer.json()) as T
    const problem = await answer.text()
    if (answer.status !== 423 || Date.now() > deadline) throw new Error(`${method} ${path}: ${String(answer.status)} ${problem}`)
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
}

type Endpoint = { id: string; current_state: string; pending_state: string | null }

/** Gives every compute of a project these Postgres settings and waits until they are applied. */
export async function configure(projectId: string, settings: Record<string, string>): Promise<void> {
  const { endpoints } = await call<{ endpoints: Endpoint[] }>('GET', `/projects/${projectId}/endpoints`)
  for (const endpoint of endpoints) {
    const { operations } = await call<{ operations: { id: string }[] }>('PATCH', `/projects/${projectId}/endpoints/${endpoint.id}`, {
      endpoint: { settings: { pg_settings: settings } },
    })
    for (const operation of operations) await finished(projectId, operation.id)
  }
}

async function finished(projectId: string, operationId: string): Promise<void> {
  const deadline = Date.now() + 60_000
  while (Date.now() < deadline) {
    const { operation } = await call<{ operation: { status: string; error?: string | null } }>('GET', `/projects/${projectId}/operations/${operationId}`)
    if (operation.status === 'finished') return
    if (['failed', 'error', 'cancelled'].includes(operation.status)) throw new Error(`operation ${operationId}: ${operation.error ?? operation.status}`)
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
  throw new Error(`operation ${operationId} did not finish within 60 s`)
}
