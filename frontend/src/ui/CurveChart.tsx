export type Curve = {
  label: string
  color: string
  dashed?: boolean
  points: { x: number; y: number | null; low?: number; high?: number }[]
}

type Props = {
  title: string
  curves: Curve[]
  /** Text of an x value: a size, a factor. x is drawn on a scale of powers of two. */
  xText: (x: number) => string
  yText: (y: number) => string
  xLabel: string
  /** y counts bytes: its steps are round in KiB, MiB and so on. */
  yBytes?: boolean
  /** A vertical line at one x, such as today's. */
  mark?: { x: number; label: string } | undefined
}

const WIDTH = 520
const HEIGHT = 220
const PAD = { left: 72, right: 12, top: 14, bottom: 34 }

/** Round steps that a person would choose, from 0 to at least `high`. */
export function steps(high: number): number[] {
  if (!(high > 0)) return [0, 1]
  const rough = high / 4
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = ([1, 2, 5, 10].find((each) => each * power >= rough) ?? 10) * power
  return Array.from({ length: Math.ceil(high / step) + 1 }, (_, index) => index * step)
}

/** The same in the unit of 1,024 that the highest is said in: `9,000` is covered in steps of 2 or 5 KiB, not of 1.95. */
export function byteSteps(high: number): number[] {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(1, high)) / 10))
  return steps(high / unit).map((step) => step * unit)
}

/** Lines over a scale of powers of two, with the spread of repeats as bars; every point names itself on hover. */
export function CurveChart({ title, curves, xText, yText, xLabel, yBytes, mark }: Props) {
  const points = curves.flatMap((curve) => curve.points)
  const xs = [...new Set(points.map((point) => point.x))].sort((a, b) => a - b)
  const first = xs[0]
  const last = xs.at(-1)
  if (first === undefined || last === undefined)
    return <p className="py-6 text-center text-muted">Nothing has been measured.</p>
  const ticks = (yBytes ? byteSteps : steps)(Math.max(...points.map((point) => point.high ?? point.y ?? 0)))
  const top = ticks.at(-1) ?? 1
  const span = Math.log2(last / first) || 1
  const x = (value: number) => PAD.left + (Math.log2(value / first) / span) * (WIDTH - PAD.left - PAD.right)
  const y = (value: number) => HEIGHT - PAD.bottom - (value / top) * (HEIGHT - PAD.top - PAD.bottom)
  const path = (curve: Curve) =>
    curve.points
      .flatMap((point) => (point.y === null ? [] : [`${String(x(point.x))},${String(y(point.y))}`]))
      .join(' ')
  const pointText = ({ x: at, y: value }: Curve['points'][number]) =>
    `${xText(at)} ${value === null ? 'not measured' : yText(value)}`
  const said = curves.map((curve) => `${curve.label}: ${curve.points.map(pointText).join(', ')}`)
  return (
    <figure>
      <svg
        role="img"
        aria-label={`${title}. ${said.join('. ')}.`}
        viewBox={`0 0 ${String(WIDTH)} ${String(HEIGHT)}`}
        className="w-full text-[11px]"
      >
        {ticks.map((tick) => (
          <g key={tick}>
            <line x1={PAD.left} x2={WIDTH - PAD.right} y1={y(tick)} y2={y(tick)} stroke="var(--chart-grid)" />
            <text x={PAD.left - 6} y={y(tick) + 4} textAnchor="end" fill="var(--muted)">
              {yText(tick)}
            </text>
          </g>
        ))}
        {xs.map(
          (value, index) =>
            (xs.length <= 6 || index % 2 === 0) && (
              <text key={value} x={x(value)} y={HEIGHT - PAD.bottom + 15} textAnchor="middle" fill="var(--muted)">
                {xText(value)}
              </text>
            ),
        )}
        <text x={(PAD.left + WIDTH - PAD.right) / 2} y={HEIGHT - 4} textAnchor="middle" fill="var(--muted)">
          {xLabel}
        </text>
        {mark && (
          <g>
            <line
              x1={x(mark.x)}
              x2={x(mark.x)}
              y1={PAD.top}
              y2={HEIGHT - PAD.bottom}
              stroke="var(--text)"
              strokeDasharray="4 3"
            />
            <text x={x(mark.x) + 4} y={PAD.top + 8} fill="var(--text)">
              {mark.label}
            </text>
          </g>
        )}
        {curves.map((curve) => (
          <g key={curve.label} stroke={`var(${curve.color})`} fill={`var(${curve.color})`}>
            <polyline
              points={path(curve)}
              fill="none"
              strokeWidth={2}
              strokeDasharray={curve.dashed ? '5 4' : undefined}
            />
            {curve.points.map((point) =>
              point.y === null ? null : (
                <g key={point.x}>
                  {point.low !== undefined && point.high !== undefined && (
                    <line x1={x(point.x)} x2={x(point.x)} y1={y(point.low)} y2={y(point.high)} strokeWidth={1} />
                  )}
                  <circle cx={x(point.x)} cy={y(point.y)} r={3} stroke="none">
                    <title>{`${curve.label}, ${xText(point.x)}: ${yText(point.y)}`}</title>
                  </circle>
                </g>
              ),
            )}
          </g>
        ))}
      </svg>
      <figcaption className="flex flex-wrap gap-x-4 gap-y-1 text-xs text-muted">
        {curves.map((curve) => (
          <span key={curve.label} className="inline-flex items-center gap-1.5">
            <span
              className="inline-block w-3 border-t-2"
              style={{ borderColor: `var(${curve.color})`, borderTopStyle: curve.dashed ? 'dashed' : 'solid' }}
            />
            {curve.label}
          </span>
        ))}
      </figcaption>
    </figure>
  )
}
