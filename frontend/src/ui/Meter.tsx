import { clsx } from 'clsx'

type Props = {
  label: string
  /** The same in words, with units. */
  text: string
  share: number
  tone?: 'accent' | 'warn' | 'bad'
}

const TONES = { accent: 'bg-accent', warn: 'bg-warn', bad: 'bg-bad' } as const

/** How full something is. */
export function Meter({ label, text, share, tone = 'accent' }: Props) {
  const percent = Math.max(0, Math.min(100, share * 100))
  return (
    <div
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(percent)}
      aria-valuetext={text}
      className="h-2 w-full overflow-hidden rounded-full bg-raised"
    >
      <div className={clsx('h-full rounded-full', TONES[tone])} style={{ width: `${String(percent)}%` }} />
    </div>
  )
}
