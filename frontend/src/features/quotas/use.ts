import type { Quota } from '~/api/types'
import { bytes, count } from '~/lib/format'

const NAMES: Record<Quota['name'], string> = {
  projects: 'Projects',
  api_keys: 'API keys',
  branches: 'Branches',
  computes: 'Running computes',
  compute_units: 'Running compute units',
  storage_bytes: 'Storage',
  roles: 'Roles',
  databases: 'Databases',
}

/** From this share on there is little left. */
const NEAR = 0.8

export type QuotaUse = {
  label: string
  /** Used and limit in words, with units. */
  text: string
  /** 0 to 1, and more where a limit was lowered below what is used; null where there is no limit or nothing known. */
  share: number | null
  state: 'open' | 'under' | 'near' | 'reached'
}

/** A quota as a row shows it. `owner` is what the row belongs to: of a project, limits are the project's own. */
export function quotaUse(quota: Quota, owner: 'account' | 'project'): QuotaUse {
  const amount = quota.name === 'storage_bytes' ? bytes : count
  const label = NAMES[quota.name] + (quota.per === owner ? '' : ` of a ${quota.per}`)
  const used = quota.used == null ? 'not measured yet' : amount(quota.used)
  if (quota.limit == null)
    return { label, text: quota.used == null ? 'no limit' : `${used}, no limit`, share: null, state: 'open' }
  const text = `${used} of ${amount(quota.limit)}`
  if (quota.used == null) return { label, text, share: null, state: 'under' }
  const share = quota.limit === 0 ? 1 : quota.used / quota.limit
  return { label, text, share, state: share >= 1 ? 'reached' : share >= NEAR ? 'near' : 'under' }
}
