import { useState } from 'react'

import type { Rollout } from '~/api/types'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Dialog } from '~/ui/Dialog'

import { consequence, controlRefusal } from './can'
import { controlRollout, type RolloutControl, rolloutKeys, type Target } from './queries'

const WORDS: Record<RolloutControl, { label: string; done: string; variant: 'primary' | 'secondary' | 'danger' }> = {
  approve: { label: 'Approve', done: 'Approved: the rollout goes on', variant: 'primary' },
  pause: { label: 'Pause', done: 'Paused: nothing new is switched', variant: 'secondary' },
  resume: { label: 'Resume', done: 'Resumed', variant: 'primary' },
  skip: { label: 'Skip', done: 'Skipped', variant: 'secondary' },
  abort: { label: 'Abort', done: 'Aborting: nothing more is switched', variant: 'danger' },
  rollback: { label: 'Roll back', done: 'Rolling back', variant: 'danger' },
}

type Props = {
  rollout: Rollout
  control: RolloutControl
  target?: Target
  /** Why it cannot be used now; the rollout's own reason when left out. */
  refusal?: string | null
  /** Names what it acts on where several of these stand on one page. */
  label?: string
  /** Drawn plainly where many of these stand side by side. */
  calm?: boolean
}

/** One control. It says what will happen before it does it. */
export function ControlButton({ rollout, control, target = null, refusal, label, calm }: Props) {
  // The rollout as it was when the question was put: what is answered to is that, whatever has become of it since.
  const [asked, setAsked] = useState<Rollout | null>(null)
  const [open, setOpen] = useState(false)
  const words = WORDS[control]
  const act = useAction(() => controlRollout(rollout.id, control, target, asked?.gate ?? null), {
    done: words.done,
    invalidate: [rolloutKeys.all],
    onDone: () => {
      setOpen(false)
    },
  })
  return (
    <>
      <Button
        needs="decides-on-all"
        variant={calm ? 'secondary' : words.variant}
        aria-label={label}
        disabledReason={refusal === undefined ? controlRefusal(control, rollout) : refusal}
        onClick={() => {
          setAsked(rollout)
          setOpen(true)
        }}
      >
        {words.label}
      </Button>
      <Dialog
        open={open}
        onClose={() => {
          setOpen(false)
        }}
        title={`${label ?? `${words.label} “${rollout.name}”`}?`}
        description={consequence(control, asked ?? rollout, target)}
      >
        <div className="flex flex-wrap justify-end gap-2">
          <Button
            onClick={() => {
              setOpen(false)
            }}
          >
            Cancel
          </Button>
          <Button
            variant={words.variant === 'danger' ? 'danger' : 'primary'}
            busy={act.isPending}
            onClick={() => {
              act.mutate(undefined)
            }}
          >
            {words.label}
          </Button>
        </div>
      </Dialog>
    </>
  )
}

/** The controls of a whole rollout; only those that mean something now, and going back always. */
export function RolloutControls({ rollout }: { rollout: Rollout }) {
  const controls: RolloutControl[] = ['approve', rollout.status === 'paused' ? 'resume' : 'pause', 'abort']
  return (
    <>
      {controls
        .filter((control) => controlRefusal(control, rollout) === null)
        .map((control) => (
          <ControlButton key={control} rollout={rollout} control={control} />
        ))}
      <ControlButton rollout={rollout} control="rollback" />
    </>
  )
}
