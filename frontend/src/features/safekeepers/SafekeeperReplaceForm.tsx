import { type SyntheticEvent, useState } from 'react'

import type { SafekeeperHealth, SafekeeperReplacement } from '~/api/types'
import { count } from '~/lib/format'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'
import { SelectField } from '~/ui/Field'
import { Notice } from '~/ui/Notice'

import { replaceSafekeeper } from './queries'

type Props = { safekeeper: SafekeeperHealth; safekeepers: SafekeeperHealth[]; onClose: () => void }

/** Gives a safekeeper's place to another one in every branch's log; only operators may. */
export function SafekeeperReplaceForm({ safekeeper: given, safekeepers, onClose }: Props) {
  const [safekeeper] = useState(given)
  const { id, lost_timelines: lost = 0 } = safekeeper
  const others = safekeepers.filter((each) => each.healthy && each.id !== id)
  const again = safekeeper.healthy && lost > 0
  const [by, setBy] = useState<number | null>(again ? id : (others[0]?.id ?? null))
  const [answer, setAnswer] = useState<Pick<SafekeeperReplacement, 'queued' | 'not_queued'> | null>(null)
  const replace = useAction((other: number) => replaceSafekeeper(id, other), {
    done: `Safekeeper ${String(id)} is being replaced`,
    invalidate: [['fleet', 'storage']],
    onDone: setAnswer,
  })
  function submit(event: SyntheticEvent) {
    event.preventDefault()
    if (by !== null) replace.mutate(by)
  }
  return (
    <Dialog
      onClose={onClose}
      title={`Replace safekeeper ${String(id)}`}
      description={
        answer
          ? 'It goes on when this is closed; the storage table shows how many branches are left.'
          : 'In the logs of all branches, of every account.'
      }
    >
      {answer ? (
        <>
          <Outcome answer={answer} />
          <div className="mt-4 flex justify-end">
            <Button variant="primary" onClick={onClose}>
              Close
            </Button>
          </div>
        </>
      ) : (
        <form onSubmit={submit}>
          {by === null ? (
            <Notice tone="warn">No other safekeeper answers: there is none to take its place.</Notice>
          ) : (
            <SelectField
              label="Its place is taken by"
              value={by}
              onChange={(event) => {
                setBy(Number(event.target.value))
              }}
            >
              {again && <option value={id}>safekeeper {id} itself: what it has lost is made again there</option>}
              {others.map((each) => (
                <option key={each.id} value={each.id}>
                  safekeeper {each.id}, in {count(each.branches)} branches
                </option>
              ))}
            </SelectField>
          )}
          <ul className="mb-3 list-disc space-y-0.5 pl-5 text-sm">
            <li>
              {by === id
                ? `The ${count(lost)} logs that it has lost are made again from their other members.`
                : `It is a member of ${count(safekeeper.branches)} branches’ logs. ` +
                  'Each is copied to the other one, which then votes in its place.'}
            </li>
            <li>Computes run on meanwhile, and idle branches are changed as well.</li>
            <li>
              A branch whose log has no majority now, that is busy, or that has the other one already, is left as it
              is and named.
            </li>
          </ul>
          <div className="flex flex-wrap justify-end gap-2">
            <Button onClick={onClose}>Cancel</Button>
            <Button
              variant="primary"
              type="submit"
              busy={replace.isPending}
              disabledReason={by === null ? 'There is none to take its place.' : null}
            >
              Replace
            </Button>
          </div>
        </form>
      )}
    </Dialog>
  )
}

/** Of more than so many left out, the first are named. */
const NAMED = 20

function Outcome({
  answer: { queued, not_queued: left },
}: {
  answer: Pick<SafekeeperReplacement, 'queued' | 'not_queued'>
}) {
  return (
    <div className="grid gap-2">
      <Notice>
        {queued === 0
          ? 'Nothing was begun.'
          : `${count(queued)} ${queued === 1 ? 'branch is' : 'branches are'} being changed.`}
      </Notice>
      {left.length > 0 && (
        <Notice tone="warn">
          {count(left.length)} {left.length === 1 ? 'branch stays' : 'branches stay'} as{' '}
          {left.length === 1 ? 'it is' : 'they are'}; ask again later:
          <ul className="mt-1 list-disc pl-5 text-xs">
            {left.slice(0, NAMED).map((each) => (
              <li key={each.branch_id}>
                <code>{each.branch_id}</code>: {each.reason}
              </li>
            ))}
            {left.length > NAMED && <li>and {count(left.length - NAMED)} more</li>}
          </ul>
        </Notice>
      )}
    </div>
  )
}
