import type { BranchDurability, DurabilityLevel, Project } from '~/api/types'

/** From what waits for least to what waits for most. */
export const LEVELS: readonly DurabilityLevel[] = ['off', 'receive', 'flush', 'apply']

/** Those that a policy can forbid. */
export const WEAK: readonly DurabilityLevel[] = ['off', 'receive']

/** What can befall a commit that was acknowledged. */
export const MISHAPS = {
  process: 'A process dies',
  machine: 'A machine loses power',
  machines: 'All machines lose power',
  disk: 'A minority of the disks is lost',
} as const

export type Mishap = keyof typeof MISHAPS
/** `mostly`: as long as one of the machines that have it takes part in the next start. */
export type Survival = 'yes' | 'mostly' | 'no'

type Facts = { name: string; returns: string; waits: string; survives: Record<Mishap, Survival> }

/** As docs/durability.md has it. */
export const FACTS: Record<DurabilityLevel, Facts> = {
  off: {
    name: 'Off',
    returns: 'in the compute’s memory',
    waits: 'never',
    survives: { process: 'no', machine: 'no', machines: 'no', disk: 'no' },
  },
  receive: {
    name: 'Receive',
    returns: 'in the memory of a majority of the safekeepers',
    waits: 'no majority answers',
    survives: { process: 'yes', machine: 'mostly', machines: 'no', disk: 'mostly' },
  },
  flush: {
    name: 'Flush',
    returns: 'on the disks of a majority of the safekeepers',
    waits: 'no majority answers, or its disks do not',
    survives: { process: 'yes', machine: 'yes', machines: 'yes', disk: 'yes' },
  },
  apply: {
    name: 'Apply',
    returns: 'on the disks of a majority of the safekeepers, and readable from storage',
    waits: 'no majority answers, its disks do not, or storage is away or behind',
    survives: { process: 'yes', machine: 'yes', machines: 'yes', disk: 'yes' },
  },
}

export function isWeaker(level: DurabilityLevel, than: DurabilityLevel): boolean {
  return LEVELS.indexOf(level) < LEVELS.indexOf(than)
}

/** What can lose an acknowledged commit at `level` that cannot at `before`. */
export function givenUp(before: DurabilityLevel, level: DurabilityLevel): Mishap[] {
  const rank = (of: Survival) => ['no', 'mostly', 'yes'].indexOf(of)
  return (Object.keys(MISHAPS) as Mishap[]).filter(
    (mishap) => rank(FACTS[level].survives[mishap]) < rank(FACTS[before].survives[mishap]),
  )
}

/** Why a level cannot be chosen, or null when it can. */
export function forbidden(durability: BranchDurability, level: DurabilityLevel): string | null {
  const by = durability.levels.find((each) => each.level === level)?.forbidden_by
  return by ? `Forbidden by the policy of the ${by}.` : null
}

/** What a project's own policy forbids; settings are kept as they came. */
export function forbiddenBy(project: Project): DurabilityLevel[] {
  const policy = project.settings['durability'] as { forbid?: string[] } | undefined
  return WEAK.filter((level) => policy?.forbid?.includes(level))
}
