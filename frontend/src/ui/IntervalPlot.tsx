export type Interval = {
  label: string
  ratio: number
  low: number | null
  high: number | null
  tone: 'good' | 'warn' | 'bad'
}

const WIDTH = 320
const HEIGHT = 14
const COLORS = { good: 'var(--good)', warn: 'var(--warn)', bad: 'var(--bad)' } as const

/** Half the plot's span as a ratio: the farthest end in sight, between 25 % and 4 times. */
function reach(intervals: Interval[]): number {
  const ends = intervals
    .flatMap(({ ratio, low, high }) => [ratio, low ?? ratio, high ?? ratio])
    .filter((end) => end > 0)
  const farthest = Math.max(...ends.map((end) => Math.abs(Math.log(end))))
  return Math.min(Math.log(4), Math.max(Math.log(1.25), farthest * 1.1))
}

/** Effects and their intervals on one logarithmic scale around "no change"; right is worse. An open end runs out. */
export function IntervalPlot({ intervals }: { intervals: Interval[] }) {
  if (intervals.length === 0) return null
  const half = reach(intervals)
  const x = (ratio: number) =>
    WIDTH / 2 + (Math.max(-half, Math.min(half, Math.log(Math.max(ratio, 1e-9)))) / half) * (WIDTH / 2 - 6)
  const edge = (sign: 1 | -1) => `${String(Math.round((Math.exp(sign * half) - 1) * 100))} %`.replace('-', '−')
  return (
    <div aria-hidden className="grid gap-1 text-xs">
      {intervals.map((interval) => (
        <div key={interval.label} className="grid grid-cols-[9rem_minmax(0,1fr)] items-center gap-2">
          <span className="truncate text-muted">{interval.label}</span>
          <svg
            viewBox={`0 0 ${String(WIDTH)} ${String(HEIGHT)}`}
            className="w-full max-w-md"
            preserveAspectRatio="none"
            height={HEIGHT}
          >
            <line x1={WIDTH / 2} x2={WIDTH / 2} y1={0} y2={HEIGHT} stroke="var(--line-strong)" />
            <line
              x1={interval.low === null ? 0 : x(interval.low)}
              x2={interval.high === null ? WIDTH : x(interval.high)}
              y1={HEIGHT / 2}
              y2={HEIGHT / 2}
              stroke={COLORS[interval.tone]}
              strokeWidth={3}
            />
            <rect x={x(interval.ratio) - 3} y={HEIGHT / 2 - 5} width={6} height={10} fill={COLORS[interval.tone]} />
          </svg>
        </div>
      ))}
      <div className="grid grid-cols-[9rem_minmax(0,1fr)] gap-2 text-muted">
        <span />
        <span className="flex max-w-md justify-between">
          <span>better {edge(-1)}</span>
          <span>no change</span>
          <span>worse +{edge(1)}</span>
        </span>
      </div>
    </div>
  )
}
