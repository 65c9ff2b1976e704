import type { Endpoint } from '~/api/types'

/** Why an action is not possible on a compute now, or null when it is. */
export const endpointCan = {
  start: (endpoint: Endpoint): string | null =>
    endpoint.pending_state
      ? `Wait: the compute is becoming ${endpoint.pending_state}.`
      : endpoint.current_state === 'active'
        ? 'The compute already runs.'
        : null,
  suspend: (endpoint: Endpoint): string | null =>
    endpoint.pending_state
      ? `Wait: the compute is becoming ${endpoint.pending_state}.`
      : endpoint.current_state !== 'active'
        ? 'The compute does not run.'
        : null,
}
