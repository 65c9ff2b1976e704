import type { BranchSafekeeper, BranchSafekeepers } from '~/api/types'
import type { Tone } from '~/ui/Badge'

/** A log has so many voters: an even number more would have to answer, and no more of them may fail. */
const SIZES = [3, 5]

export const STATES: Record<BranchSafekeeper['state'], { text: string; tone: Tone }> = {
  active: { text: 'active', tone: 'good' },
  stopped: { text: 'stopped', tone: 'bad' },
  lost: { text: 'log lost', tone: 'bad' },
  unreachable: { text: 'does not answer', tone: 'bad' },
  diverged: { text: 'another history', tone: 'bad' },
  damaged: { text: 'damaged', tone: 'bad' },
}

/** A member with damaged WAL takes what comes as before. */
export const ACKNOWLEDGING: BranchSafekeeper['state'][] = ['active', 'damaged']

export const ROLES: Record<BranchSafekeeper['role'], { text: string; means: string }> = {
  voter: { text: 'voter', means: 'Counts for the majority that a commit waits for.' },
  learner: { text: 'learner', means: 'Receives the log, and counts for nothing until it has all of it.' },
  none: { text: 'set aside', means: 'No member: a log that it held before is kept there, and counts for nothing.' },
}

/** Disks are told apart by their first digits. */
export function diskText(disk: string | null | undefined): string {
  return disk ? disk.slice(0, 8) : '—'
}

export function votersOf(held: BranchSafekeepers): number[] {
  return ids(held.members.filter((each) => each.role === 'voter').map((each) => each.safekeeper_id))
}

/** All that can be chosen: the log's members and what the installation has beside them. */
export function choices(held: BranchSafekeepers): number[] {
  return ids([...held.members.map((each) => each.safekeeper_id), ...held.available])
}

function ids(numbers: number[]): number[] {
  return [...new Set(numbers)].sort((a, b) => a - b)
}

/** How many voters may be away while commits go on. */
export function spare(voters: number): number {
  return Math.max(0, Math.floor((voters - 1) / 2))
}

type Change = {
  added: number[]
  removed: number[]
  /** Voters that have lost the log and are given it again. */
  again: number[]
}

export function changeOf(held: BranchSafekeepers, wanted: number[]): Change {
  const voters = votersOf(held)
  const lost = held.members.filter((each) => each.state === 'lost').map((each) => each.safekeeper_id)
  return {
    added: ids(wanted.filter((each) => !voters.includes(each))),
    removed: voters.filter((each) => !wanted.includes(each)),
    again: voters.filter((each) => wanted.includes(each) && lost.includes(each)),
  }
}

/** Why these cannot be the voters, or null when they can. The server looks again. */
export function setRefusal(held: BranchSafekeepers, wanted: number[]): string | null {
  const sizes = choices(held).length === 1 ? [1] : SIZES
  if (!sizes.includes(wanted.length)) return `Choose ${sizes.join(' or ')}.`
  const { added, removed, again } = changeOf(held, wanted)
  const silent = held.members.find((each) => added.includes(each.safekeeper_id) && each.state === 'unreachable')
  if (silent) return `Safekeeper ${String(silent.safekeeper_id)} does not answer.`
  const learners = held.members.some((each) => each.role === 'learner')
  if (added.length + removed.length + again.length === 0 && !learners) return 'These are its voters.'
  return null
}

export function numbered(numbers: number[]): string {
  return numbers.length === 1 ? `safekeeper ${String(numbers[0])}` : `safekeepers ${numbers.join(', ')}`
}
