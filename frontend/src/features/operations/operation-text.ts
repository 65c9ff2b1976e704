import type { Operation } from '~/api/types'
import { stateText } from '~/shared/states'

/** The API's names of operations, where they are not plain words. */
const OPERATIONS: Partial<Record<Operation['action'], string>> = {
  create_timeline: 'create project',
  apply_config: 'apply compute settings',
  apply_storage_config: 'apply history window',
  swap_binding_id: 'restore branch',
  detach_parent_branch: 'detach branch',
  replace_safekeeper: 'change safekeepers',
}

export function operationText({ action, branch_id }: Operation): string {
  if (action === 'delete_timeline') return branch_id ? 'delete branch' : 'delete project'
  return OPERATIONS[action] ?? stateText(action)
}
