import { type SyntheticEvent, useState } from 'react'

import type { Branch, DurabilityLevel, Project } from '~/api/types'
import { FACTS, forbiddenBy, isWeaker, LEVELS, WEAK } from '~/features/durability/levels'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'
import { Checkbox } from '~/ui/Field'
import { Notice } from '~/ui/Notice'

import { updateProject } from './queries'

type Props = { project: Project; branches: Branch[]; onClose: () => void }

/** Which weak levels of commits no branch of a project may have. */
export function CommitPolicyForm({ project, branches, onClose }: Props) {
  const [before] = useState(() => forbiddenBy(project))
  const [forbid, setForbid] = useState<DurabilityLevel[]>(before)
  const change = useAction((forbidLevels: DurabilityLevel[]) => updateProject(project.id, { forbidLevels }), {
    done: 'The policy of commits is being changed',
    invalidate: [projectKeys.one(project.id), ['computes']],
    onDone: onClose,
  })
  const same = WEAK.every((level) => forbid.includes(level) === before.includes(level))
  const given = (level: DurabilityLevel) =>
    LEVELS.find((each) => !isWeaker(each, level) && !forbid.includes(each)) ?? level
  const raised = branches.filter((branch) => forbid.includes(branch.durability))
  const lowered = branches.filter(
    (branch) => before.includes(branch.durability) && !forbid.includes(branch.durability),
  )
  function submit(event: SyntheticEvent) {
    event.preventDefault()
    if (!same) change.mutate(forbid)
  }
  return (
    <Dialog
      onClose={onClose}
      title="Policy of commits"
      description={`Levels that no branch of ${project.name} may have, beside those that the installation forbids.`}
    >
      <form onSubmit={submit}>
        <fieldset className="mb-3">
          <legend className="sr-only">Forbidden levels</legend>
          {WEAK.map((level) => (
            <Checkbox
              key={level}
              label={
                <span>
                  Forbid {FACTS[level].name}{' '}
                  <span className="text-xs text-muted">(a commit returns once it is {FACTS[level].returns})</span>
                </span>
              }
              checked={forbid.includes(level)}
              onChange={(checked) => {
                setForbid(WEAK.filter((each) => (each === level ? checked : forbid.includes(each))))
              }}
            />
          ))}
        </fieldset>
        <p className="mb-3 text-xs text-muted">
          Postgres lets every session, role and database choose a level all the same. Pages of branches and computes
          show which roles and databases have.
        </p>
        <div className="mb-3 grid gap-2 empty:hidden">
          {raised.length > 0 && (
            <Notice>
              While this holds, computes are given more than was chosen:{' '}
              {raised
                .map(
                  (branch) =>
                    `${branch.name} ${FACTS[given(branch.durability)].name} in place of ${FACTS[branch.durability].name}`,
                )
                .join(', ')}
              .
            </Notice>
          )}
          {lowered.length > 0 && (
            <Notice tone="warn">
              {lowered.map((branch) => `${branch.name} (${FACTS[branch.durability].name})`).join(', ')}: the weaker
              level that was chosen takes effect again.
            </Notice>
          )}
        </div>
        <div className="flex flex-wrap justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button
            variant={lowered.length > 0 ? 'danger' : 'primary'}
            type="submit"
            busy={change.isPending}
            disabledReason={same ? 'This is the policy it has.' : null}
          >
            Change policy
          </Button>
        </div>
      </form>
    </Dialog>
  )
}
