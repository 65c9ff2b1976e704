import { type SyntheticEvent, useState } from 'react'

import type { Branch, BranchSafekeeper, BranchSafekeepers } from '~/api/types'
import { bytes } from '~/lib/format'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'
import { Checkbox } from '~/ui/Field'
import { Notice } from '~/ui/Notice'

import { setSafekeepers } from './queries'
import { changeOf, choices, numbered, ROLES, setRefusal, spare, STATES, votersOf } from './voters'

type Props = { projectId: string; branch: Branch; held: BranchSafekeepers; onClose: () => void }

/** Which safekeepers are to vote for a branch's log. Begins with what the last change did not get to. */
export function BranchSafekeepersForm({ projectId, branch, held: given, onClose }: Props) {
  // As they were when this was opened: a choice must not change under the hand that makes it.
  const [held] = useState(given)
  const [wanted, setWanted] = useState(() => held.wanted ?? votersOf(held))
  const refused = setRefusal(held, wanted)
  const change = useAction((safekeepers: number[]) => setSafekeepers(projectId, branch.id, safekeepers), {
    done: `The safekeepers of ${branch.name} are being changed`,
    invalidate: [projectKeys.one(projectId), ['fleet', 'storage']],
    onDone: onClose,
  })
  function submit(event: SyntheticEvent) {
    event.preventDefault()
    if (refused === null) change.mutate(wanted)
  }
  return (
    <Dialog
      onClose={onClose}
      title={`Safekeepers of ${branch.name}`}
      description="Those chosen become the voters of its log."
    >
      <form onSubmit={submit}>
        <fieldset className="mb-3">
          <legend className="sr-only">Voters</legend>
          {choices(held).map((id) => (
            <Checkbox
              key={id}
              label={<Choice id={id} member={held.members.find((each) => each.safekeeper_id === id)} />}
              checked={wanted.includes(id)}
              onChange={(checked) => {
                setWanted((before) =>
                  checked ? [...before, id].sort((a, b) => a - b) : before.filter((each) => each !== id),
                )
              }}
            />
          ))}
        </fieldset>
        <Consequences held={held} wanted={wanted} />
        <div className="mt-4 flex flex-wrap justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button variant="primary" type="submit" busy={change.isPending} disabledReason={refused}>
            Change safekeepers
          </Button>
        </div>
      </form>
    </Dialog>
  )
}

/** What the member is in the branch's configuration, and how it stands. */
function standing(member: BranchSafekeeper): string {
  const role = ROLES[member.role].text
  if (member.state !== 'active') return `${role}, ${STATES[member.state].text}`
  return member.lag_bytes ? `${role}, ${bytes(member.lag_bytes)} behind` : role
}

function Choice({ id, member }: { id: number; member: BranchSafekeeper | undefined }) {
  return (
    <span>
      Safekeeper {id} <span className="text-xs text-muted">({member ? standing(member) : 'does not hold it'})</span>
    </span>
  )
}

/** What follows from a choice, in the order in which it happens. */
function Consequences({ held, wanted }: { held: BranchSafekeepers; wanted: number[] }) {
  const { added, removed, again } = changeOf(held, wanted)
  const refused = setRefusal(held, wanted)
  return (
    <div className="grid gap-2" aria-live="polite">
      {refused && <p className="text-sm text-muted">{refused}</p>}
      <ul className="list-disc space-y-0.5 pl-5 text-sm empty:hidden">
        {again.length > 0 && <li>The log is made again on {numbered(again)}, from the other members.</li>}
        {added.length > 0 && (
          <li>
            The log is copied to {numbered(added)}, which then vote{added.length === 1 ? 's' : ''}.
          </li>
        )}
        {removed.length > 0 && (
          <li>
            Then {numbered(removed)} vote{removed.length === 1 ? 's' : ''} no more. What{' '}
            {removed.length === 1 ? 'it holds' : 'they hold'} of the log is kept there, set aside.
          </li>
        )}
        {!refused && (
          <li>
            Computes run on meanwhile. Commits then go on while at most {spare(wanted.length)} of {wanted.length} are
            away.
          </li>
        )}
      </ul>
      {!refused && wanted.length < votersOf(held).length && (
        <Notice tone="warn">Fewer voters: fewer of them may fail.</Notice>
      )}
    </div>
  )
}
