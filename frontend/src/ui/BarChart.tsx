export type Bar = {
  key: string
  /** Which time or thing the bar is of, as a person reads it. */
  label: string
  /** Null where nothing was measured. */
  value: number | null
}

type Props = {
  /** What the chart shows, for the accessible name. */
  title: string
  bars: Bar[]
  format: (value: number) => string
  /** A CSS custom property, such as `--chart-rest`. */
  color: string
}

/** One quantity by hours, days or months. The figures themselves belong in a table beside it. */
export function BarChart({ title, bars, format, color }: Props) {
  const most = Math.max(0, ...bars.map((bar) => bar.value ?? 0))
  return (
    <figure>
      <div
        role="img"
        aria-label={`${title}: at most ${format(most)}`}
        className="flex h-32 items-end gap-px border-b border-line"
      >
        {bars.map((bar) => (
          <span
            key={bar.key}
            title={`${bar.label}: ${bar.value === null ? 'not measured' : format(bar.value)}`}
            className="flex h-full min-w-0 flex-1 items-end hover:bg-raised"
          >
            {bar.value !== null && bar.value > 0 && (
              <span
                className="w-full min-h-px rounded-t-sm"
                style={{ height: `${String((100 * bar.value) / most)}%`, background: `var(${color})` }}
              />
            )}
          </span>
        ))}
      </div>
      <figcaption className="mt-1 flex justify-between gap-2 text-xs text-muted">
        <span>{bars[0]?.label}</span>
        <span>at most {format(most)}</span>
        <span>{bars.at(-1)?.label}</span>
      </figcaption>
    </figure>
  )
}
