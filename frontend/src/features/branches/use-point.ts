import { useQuery } from '@tanstack/react-query'

import { errorText } from '~/api/errors'
import type { BranchHistory, HistoryPoint } from '~/api/types'
import { useNow } from '~/shared/use-now'
import { useSettled } from '~/shared/use-settled'

import { pointRefusal } from './history-window'
import { branchHistoryQuery, historyPointQuery, type Point } from './queries'

export type ChosenPoint = {
  history: BranchHistory | undefined
  historyError: string | null
  now: number
  /** Why there is no such state. */
  refusal: string | null
  /** What it is, once storage has said so. */
  found: HistoryPoint | null
  checking: boolean
  /** Why it cannot be used yet; null when it can. */
  blocked: string | null
}

/** What is known of a point of a branch's past: checked here as far as that goes, and by storage for the rest. */
export function usePoint(projectId: string, branchId: string, point: Point): ChosenPoint {
  const now = useNow()
  const { data: history, error } = useQuery(branchHistoryQuery(projectId, branchId))
  const settled = useSettled(point)
  const wanted = point.from !== 'head' && point.at.trim() !== ''
  const here = pointRefusal(point, history, now)
  const still = settled.from === point.from && settled.at === point.at
  const asked = useQuery({
    ...historyPointQuery(projectId, branchId, settled),
    enabled: wanted && still && here === null,
  })
  const refusal = here ?? (wanted && still && asked.error ? errorText(asked.error) : null)
  const found = wanted && still && refusal === null ? (asked.data ?? null) : null
  const checking = wanted && refusal === null && found === null
  const blocked =
    point.from === 'head' || found
      ? null
      : (refusal ?? (checking ? 'Storage is being asked for this state.' : 'Choose a state first.'))
  return { history, historyError: error ? errorText(error) : null, now, refusal, found, checking, blocked }
}
