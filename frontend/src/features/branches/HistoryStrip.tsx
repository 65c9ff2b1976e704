import { Slider } from 'radix-ui'

import type { BranchHistory } from '~/api/types'
import { time } from '~/lib/format'

import { shareOf, strip } from './history-window'

type Props = {
  history: BranchHistory
  /** When the project was made: where the line begins while everything is kept. */
  since: string
  now: number
  /** A moment in sight on it, milliseconds; with `onChoose` it can be moved. */
  chosen?: number | null
  onChoose?: (moment: number) => void
}

const left = (share: number) => ({ left: `${String(share * 100)}%` })

/** The sign of a place where a branch was made. */
export function BranchMark() {
  return <span aria-hidden className="inline-block size-2 flex-none rotate-45 bg-[var(--chart-p99)]" />
}

/** A branch's past on a line of time: what is kept of it, and where branches were made. */
export function HistoryStrip({ history, since, now, chosen, onChoose }: Props) {
  const { from, to, marks } = strip(history, since, now)
  const step = Math.max(1, Math.round((to - from) / 400_000)) * 1000
  const said = `History from ${time(from)} to now${marks.map((mark) => `; ${mark.name} branched at ${time(mark.at)}`).join('')}`
  return (
    <div className="mb-3">
      <div className="relative mx-1.5 pt-4">
        {marks.map((mark) => (
          <span
            key={mark.id}
            title={`${mark.name} was branched here: ${mark.lsn}, ${time(mark.at)}`}
            style={left(mark.share)}
            className="absolute top-0 flex -translate-x-1/2 flex-col items-center text-muted"
          >
            <BranchMark />
            <span aria-hidden className="h-5 border-l border-[var(--chart-p99)]" />
          </span>
        ))}
        {onChoose ? (
          <Slider.Root
            min={from}
            max={to}
            step={step}
            value={[Math.max(from, Math.min(to, chosen ?? to))]}
            onValueChange={([moment]) => {
              if (moment !== undefined) onChoose(moment)
            }}
            className="relative -mx-1.5 flex h-4 touch-none items-center"
          >
            <Slider.Track className="relative mx-1.5 h-2 grow rounded-full bg-accent/35" />
            <Slider.Thumb
              aria-label="Moment"
              aria-valuetext={time(chosen ?? to)}
              className="block h-5 w-3 cursor-grab rounded-sm border-2 border-panel bg-accent"
            />
          </Slider.Root>
        ) : (
          <div role="img" aria-label={said} className="relative flex h-4 items-center">
            <span className="h-2 w-full rounded-full bg-accent/35" />
            {chosen != null && (
              <span
                style={left(shareOf(chosen, from, to))}
                className="absolute h-4 w-0.5 -translate-x-1/2 bg-accent"
              />
            )}
          </div>
        )}
      </div>
      <div className="tabular flex justify-between gap-4 text-xs text-muted">
        <span>
          {history.oldest_timestamp ? 'oldest kept:' : 'all kept, since'} {time(from)}
        </span>
        <span className="text-right">now</span>
      </div>
    </div>
  )
}
