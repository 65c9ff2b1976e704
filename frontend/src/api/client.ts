import createClient from 'openapi-fetch'

import { apiError } from './errors'
import type { paths } from './generated/schema'

/** Typed client for the API of the same origin; the session cookie authenticates. */
export const client = createClient<paths>({ baseUrl: '/' })

type Result<T> = { data?: T; error?: unknown; response: Response }

/** The body of a successful answer, or an `ApiError`. */
export async function unwrap<T>(pending: Promise<Result<T>>): Promise<NonNullable<T>> {
  const { data, error, response } = await pending
  if (!response.ok) throw apiError(response.status, error, response.headers.get('Retry-After'))
  return data as NonNullable<T>
}
