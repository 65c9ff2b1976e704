import { useStore } from '@tanstack/react-form'

import type { Endpoint } from '~/api/types'
import { submits, useAppForm } from '~/shared/form'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'

import { changeIdle, type IdleChoice } from './endpoint-queries'
import { idleTimes, idleTimeText } from './idle-time'

type Props = { projectId: string; endpoint: Endpoint; onClose: () => void }

/** After how long without a client's activity a compute is suspended, and whether it starts warm after that. */
export function IdleTimeForm({ projectId, endpoint, onClose }: Props) {
  const before = Math.max(endpoint.suspend_timeout_seconds, 0)
  const form = useAppForm({
    defaultValues: { seconds: String(before), prewarm: endpoint.prewarm },
    onSubmit: ({ value }) => {
      // The value of now stays as it is stored: -1 and 0 are both never, and mean different things.
      const seconds = Number(value.seconds)
      change.mutate({
        suspend_timeout_seconds: seconds === before ? endpoint.suspend_timeout_seconds : seconds,
        prewarm: value.prewarm,
      })
    },
  })
  const values = useStore(form.store, (state) => state.values)
  const chosen = Number(values.seconds)
  const change = useAction((choice: IdleChoice) => changeIdle(projectId, endpoint.id, choice), {
    done: chosen === 0 ? 'The compute runs until it is suspended' : `The compute suspends ${idleTimeText(chosen)}`,
    invalidate: [projectKeys.one(projectId)],
    onDone: onClose,
  })
  return (
    <Dialog
      onClose={onClose}
      title="Suspend when idle"
      description={`When compute ${endpoint.id} is suspended by itself.`}
    >
      <form onSubmit={submits(form)}>
        <form.AppField name="seconds">
          {(field) => (
            <field.Select label="Suspend without activity">
              {idleTimes(before).map((seconds) => (
                <option key={seconds} value={String(seconds)}>
                  {idleTimeText(seconds)}
                </option>
              ))}
            </field.Select>
          )}
        </form.AppField>
        <form.AppField name="prewarm">
          {(field) => <field.Check label="Load what was in memory again when it starts" />}
        </form.AppField>
        <p className="my-3 text-xs text-muted">
          What was in memory is loaded behind the queries of clients, from the next start on. Sessions that only wait
          for their client do not keep a compute awake, and end when it is suspended. A client that connects by the
          proxy starts it again and waits meanwhile. Statements, open transactions, replication and rows in unlogged
          tables keep it awake; somebody who suspends it is asked whether those rows may go.
        </p>
        <div className="flex flex-wrap justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button
            needs="works"
            variant="primary"
            type="submit"
            busy={change.isPending}
            disabledReason={
              chosen === before && values.prewarm === endpoint.prewarm ? 'This is what it does now.' : null
            }
          >
            Save
          </Button>
        </div>
      </form>
    </Dialog>
  )
}
