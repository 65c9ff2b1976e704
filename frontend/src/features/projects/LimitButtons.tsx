import { Button } from '~/ui/Button'

type Props = {
  /** What is limited, as in "Set quota". */
  what: string
  /** The limit that was typed: 0 is none, null is not one yet. */
  limit: number | null
  before: number
  busy: boolean
  onCancel: () => void
}

/** The buttons of a form that sets one limit, or lifts it. */
export function LimitButtons({ what, limit, before, busy, onCancel }: Props) {
  return (
    <div className="flex flex-wrap justify-end gap-2">
      <Button onClick={onCancel}>Cancel</Button>
      <Button
        variant="primary"
        type="submit"
        busy={busy}
        disabledReason={
          limit === null ? 'Say how much first.' : limit === before ? `This is the ${what} it has.` : null
        }
      >
        {limit === 0 ? `Lift ${what}` : `Set ${what}`}
      </Button>
    </div>
  )
}
