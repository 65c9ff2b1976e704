/** What the API said when it refused; `message` is written for people and shown as it is. */
export class ApiError extends Error {
  readonly status: number
  readonly code: string
  readonly requestId: string | undefined
  /** Seconds to wait before it is worth trying again, where the answer said so. */
  readonly retryAfter: number | undefined

  constructor(status: number, code: string, message: string, requestId?: string, retryAfter?: number) {
    super(message)
    this.name = 'ApiError'
    this.status = status
    this.code = code
    this.requestId = requestId
    this.retryAfter = retryAfter
  }
}

function field(body: unknown, name: string): string | undefined {
  if (typeof body !== 'object' || body === null || !(name in body)) return undefined
  const value = (body as Record<string, unknown>)[name]
  return typeof value === 'string' ? value : undefined
}

/** `retryAfter`: the header of that name, which the API gives in seconds. */
export function apiError(status: number, body: unknown, retryAfter: string | null = null): ApiError {
  return new ApiError(
    status,
    field(body, 'code') ?? 'UNKNOWN',
    field(body, 'message') ?? `The server answered ${String(status)} without saying why.`,
    field(body, 'request_id'),
    retryAfter !== null && /^\d{1,6}$/.test(retryAfter.trim()) ? Number(retryAfter) : undefined,
  )
}

/** One sentence for any failure, including the network's. */
export function errorText(error: unknown): string {
  if (error instanceof ApiError)
    return error.requestId ? `${error.message} (request ${error.requestId})` : error.message
  if (error instanceof TypeError) return 'The Weir API does not answer. Check `weir status`, then try again.'
  return error instanceof Error ? error.message : String(error)
}
