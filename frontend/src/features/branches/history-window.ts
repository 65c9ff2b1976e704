import type { BranchHistory } from '~/api/types'
import { time } from '~/lib/format'

import type { Point } from './queries'

const LSN = /^[0-9a-fA-F]{1,8}\/[0-9a-fA-F]{1,8}$/

/** `0/16B3748` as a number that compares; null for what is no LSN. */
export function lsnValue(text: string): number | null {
  if (!LSN.test(text)) return null
  const [high = '', low = ''] = text.split('/')
  return parseInt(high, 16) * 2 ** 32 + parseInt(low, 16)
}

/** Why a branch cannot have such a state, as far as is known without asking storage; null when it may. */
export function pointRefusal(point: Point, history: BranchHistory | undefined, now: number): string | null {
  const at = point.at.trim()
  if (point.from === 'head' || at === '') return null
  if (point.from === 'lsn') {
    const lsn = lsnValue(at)
    if (lsn === null) return 'Two hexadecimal numbers with a slash between, such as 0/16B3748.'
    const oldest = history && lsnValue(history.oldest_lsn)
    return oldest != null && lsn < oldest
      ? `Older than the history, which begins at ${history?.oldest_lsn ?? ''}.`
      : null
  }
  const moment = new Date(at).getTime()
  if (Number.isNaN(moment)) return 'A date and a time, to the second.'
  if (moment > now) return 'This is still to come.'
  const oldest = history?.oldest_timestamp
  return oldest && moment < Math.floor(Date.parse(oldest) / 1000) * 1000
    ? `Older than the history, which begins with the commit of ${time(oldest)}.`
    : null
}

export type Mark = { id: string; name: string; lsn: string; at: number; share: number }
export type Strip = { from: number; to: number; marks: Mark[]; untimed: number }

/** A branch's history on a line of time. It begins with the oldest commit that is kept, or with the project. */
export function strip(history: BranchHistory, since: string, now: number): Strip {
  const from = Math.min(Date.parse(history.oldest_timestamp ?? since), now - 1000)
  const marks = history.branch_points.flatMap(({ branch_id, name, lsn, timestamp }) => {
    if (!timestamp) return []
    const at = Date.parse(timestamp)
    return [{ id: branch_id, name, lsn, at, share: shareOf(at, from, now) }]
  })
  return { from, to: now, marks, untimed: history.branch_points.length - marks.length }
}

/** Where a moment lies between two, from 0 to 1; what is outside lies at the end. */
export function shareOf(at: number, from: number, to: number): number {
  return Math.max(0, Math.min(1, (at - from) / Math.max(1, to - from)))
}
