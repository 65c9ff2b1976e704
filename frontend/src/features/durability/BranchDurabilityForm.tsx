import { type SyntheticEvent, useState } from 'react'

import type { Branch, BranchDurability, DurabilityLevel } from '~/api/types'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'
import { TextField } from '~/ui/Field'
import { Notice } from '~/ui/Notice'

import { FACTS, forbidden, givenUp, isWeaker, LEVELS, MISHAPS } from './levels'
import { setDurability } from './queries'

type Props = { projectId: string; branch: Branch; durability: BranchDurability; onClose: () => void }

/** What a branch's commits wait for. A weaker level is confirmed by the branch's name. */
export function BranchDurabilityForm({ projectId, branch, durability: given, onClose }: Props) {
  // As it was when this was opened: what is weaker must not change under the hand that confirms it.
  const [durability] = useState(given)
  const [level, setLevel] = useState<DurabilityLevel>(durability.level)
  const [typed, setTyped] = useState('')
  const weaker = isWeaker(level, durability.effective)
  const change = useAction((wanted: DurabilityLevel) => setDurability(projectId, branch.id, wanted), {
    done: `Commits of ${branch.name} are being changed`,
    invalidate: [projectKeys.one(projectId), ['computes']],
    onDone: onClose,
  })
  const blocked =
    level === durability.level
      ? 'This is the level it has.'
      : (forbidden(durability, level) ?? (weaker && typed !== branch.name ? `Type ${branch.name} to confirm.` : null))
  function submit(event: SyntheticEvent) {
    event.preventDefault()
    if (blocked === null) change.mutate(level)
  }
  return (
    <Dialog onClose={onClose} title={`Commits of ${branch.name}`} description="A commit returns once it is …">
      <form onSubmit={submit}>
        <fieldset className="mb-3">
          <legend className="sr-only">Level</legend>
          {LEVELS.map((each) => (
            <Choice
              key={each}
              level={each}
              chosen={each === level}
              refused={forbidden(durability, each)}
              onChoose={() => {
                setLevel(each)
              }}
            />
          ))}
        </fieldset>
        <p className="mb-3 text-xs text-muted">
          Running computes have it at once, for sessions that have not chosen themselves. Branches made from it later
          begin with it.
        </p>
        {weaker && (
          <>
            <div className="mb-3">
              <Notice tone="warn">
                Commits that clients were told of can be lost from then on:{' '}
                {givenUp(durability.effective, level)
                  .map((mishap) => MISHAPS[mishap].toLowerCase())
                  .join(', ') || 'see the table'}
                . A stronger level later does not bring back what was lost.
              </Notice>
            </div>
            <TextField
              label={`Type ${branch.name} to confirm`}
              value={typed}
              onChange={(event) => {
                setTyped(event.target.value)
              }}
            />
          </>
        )}
        <div className="flex flex-wrap justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button
            variant={weaker ? 'danger' : 'primary'}
            type="submit"
            busy={change.isPending}
            disabledReason={blocked}
          >
            {weaker ? 'Weaken' : 'Change level'}
          </Button>
        </div>
      </form>
    </Dialog>
  )
}

function Choice({
  level,
  chosen,
  refused,
  onChoose,
}: {
  level: DurabilityLevel
  chosen: boolean
  refused: string | null
  onChoose: () => void
}) {
  const { name, returns, waits } = FACTS[level]
  return (
    <label className="flex items-start gap-2 py-1.5 text-sm">
      <input
        type="radio"
        name="level"
        value={level}
        checked={chosen}
        disabled={refused !== null}
        onChange={onChoose}
        className="mt-1"
      />
      <span className={refused ? 'text-muted' : undefined}>
        <span className="font-medium">{name}</span>: {returns}
        {level === 'flush' && ' (the default)'}
        <span className="block text-xs text-muted">
          {refused ?? (level === 'off' ? 'It never waits.' : `It waits while ${waits}.`)}
        </span>
      </span>
    </label>
  )
}
