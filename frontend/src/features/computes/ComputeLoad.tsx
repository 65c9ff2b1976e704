import { useQuery } from '@tanstack/react-query'

import type { Endpoint } from '~/api/types'

import { computeQuery } from './queries'
import { loadNote, sizeText } from './size'

const REFRESH_MS = 10_000

/** The size that an endpoint has and the sizes that it may have, beside what its compute does with it now. */
export function ComputeLoad({ endpoint }: { endpoint: Endpoint }) {
  const runs = endpoint.current_state === 'active'
  const { data } = useQuery({ ...computeQuery(endpoint.id), enabled: runs, refetchInterval: REFRESH_MS })
  const { autoscaling_limit_min_cu: least, autoscaling_limit_max_cu: most } = endpoint
  const load = runs ? loadNote(data?.compute.load) : undefined
  return (
    <span className="text-xs text-muted">
      {sizeText(endpoint.current_cu)}
      {least !== most && ` of ${String(least)} to ${String(most)}`}
      {load && ` · ${load}`}
    </span>
  )
}
