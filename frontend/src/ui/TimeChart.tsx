import { useEffect, useRef, useState } from 'react'
import uPlot from 'uplot'

import { stack } from '~/lib/stack'

import { annotate, cssColor, type Marker, type Window } from './chart-annotations'

export type Series = {
  label: string
  /** A CSS custom property, such as `--chart-rest`. */
  color: string
  /** One value per time; null where nothing was measured. */
  values: (number | null)[]
  /** Drawn broken: a comparison, not the thing itself. */
  dashed?: boolean
  /** Drawn over a stack, as it is. Comes after the parts of the stack. */
  overlay?: boolean
}

type Props = {
  /** What the chart shows, for the accessible name. */
  title: string
  /** Seconds since the epoch, ascending. */
  times: number[]
  series: Series[]
  stacked?: boolean
  format: (value: number) => string
  /** Axis steps in powers of two, for bytes. */
  binary?: boolean
  markers?: Marker[]
  windows?: Window[]
  height?: number
}

const POWERS_OF_TWO = Array.from({ length: 50 }, (_, exponent) => 2 ** exponent)

function clock(unixSeconds: number): string {
  return new Date(unixSeconds * 1000).toLocaleTimeString('en-GB')
}

/** `latest` is read at each draw, so that new samples need no new chart; `onCursor` gets the hovered index. */
function options(latest: () => Props, width: number, onCursor: (at: number | null) => void): uPlot.Options {
  const { series, stacked, format, binary, height = 180 } = latest()
  const parts = series.filter((part) => !part.overlay)
  const axis = {
    stroke: cssColor('--muted'),
    grid: { stroke: cssColor('--chart-grid'), width: 1 },
    ticks: { show: false },
  }
  const lines: uPlot.Series[] = series.map((part, index) => ({
    label: part.label,
    stroke: cssColor(part.color),
    width: 1.5,
    points: { show: false },
    ...(part.dashed ? { dash: [5, 4] } : {}),
    ...(stacked && index === 0 ? { fill: `${cssColor(part.color)}66` } : {}),
  }))
  return {
    width,
    height,
    legend: { show: false },
    // To the right room for half a label: the last tick may stand at the very end.
    padding: [8, 28, 0, 0],
    cursor: { drag: { x: false, y: false } },
    scales: { x: { time: true }, y: { range: (_chart, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    axes: [
      { ...axis, space: 90, size: 28, values: (_chart, ticks) => ticks.map(clock) },
      {
        ...axis,
        size: 78,
        values: (_chart, ticks) => ticks.map((tick) => format(tick)),
        ...(binary ? { incrs: POWERS_OF_TWO } : {}),
      },
    ],
    series: [{ label: 'Time' }, ...lines],
    bands: stacked
      ? parts.slice(1).map((part, index) => ({ series: [index + 2, index + 1], fill: `${cssColor(part.color)}66` }))
      : [],
    hooks: {
      drawAxes: [
        (chart) => {
          annotate(chart, latest().windows ?? [], latest().markers ?? [])
        },
      ],
      setCursor: [
        (chart) => {
          onCursor(chart.cursor.idx ?? null)
        },
      ],
    },
  }
}

function columns({ times, series, stacked }: Props): uPlot.AlignedData {
  const plain = (parts: Series[]) => parts.map((part) => part.values)
  return [
    times,
    ...(stacked
      ? [...stack(series.filter((part) => !part.overlay)), ...plain(series.filter((part) => part.overlay))]
      : plain(series)),
  ]
}

/** What changes the look of a chart; everything else is data and is drawn into the chart that stands. */
function appearance({ series, stacked, binary, height }: Props): string {
  return JSON.stringify([
    series.map((part) => [part.label, part.color, part.dashed, part.overlay]),
    stacked,
    binary,
    height,
  ])
}

function Legend({ series, format, times, at }: Props & { at: number | null }) {
  return (
    <p className="tabular mt-1 flex flex-wrap items-center gap-x-4 gap-y-1 text-xs text-muted" aria-hidden>
      {series.map((part) => {
        const value = at == null ? part.values.findLast((each) => each != null) : part.values[at]
        return (
          <span key={part.label} className="inline-flex items-center gap-1.5">
            <span
              className="inline-block w-3 border-t-2"
              style={{ borderColor: `var(${part.color})`, borderTopStyle: part.dashed ? 'dashed' : 'solid' }}
            />
            {part.label} <strong className="font-medium text-text">{value == null ? '—' : format(value)}</strong>
          </span>
        )
      })}
      <span className="ml-auto">{at == null ? 'latest' : `at ${clock(times[at] ?? 0)}`}</span>
    </p>
  )
}

/** Time series with units on the axis, shaded windows and marked events; follows theme and width. */
export function TimeChart(props: Props) {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const held = useRef(props)
  const [at, setAt] = useState<number | null>(null)
  const shape = appearance(props)
  const empty = props.times.length === 0

  useEffect(() => {
    held.current = props
    plot.current?.setData(columns(props))
  }, [props])

  useEffect(() => {
    const element = box.current
    if (!element || empty) return
    const draw = () => {
      plot.current?.destroy()
      plot.current = new uPlot(
        options(() => held.current, element.clientWidth, setAt),
        columns(held.current),
        element,
      )
    }
    draw()
    const resize = new ResizeObserver(() => {
      const chart = plot.current
      if (chart && Math.abs(chart.width - element.clientWidth) > 1)
        chart.setSize({ width: element.clientWidth, height: chart.height })
    })
    resize.observe(element)
    const theme = new MutationObserver(draw)
    theme.observe(document.documentElement, { attributeFilter: ['class'] })
    return () => {
      resize.disconnect()
      theme.disconnect()
      plot.current?.destroy()
      plot.current = null
    }
  }, [shape, empty])

  if (empty) return <p className="py-10 text-center text-muted">No samples in this window yet.</p>
  const latest = props.series.map(
    (part) => `${part.label} ${props.format(part.values.findLast((value) => value != null) ?? NaN)}`,
  )
  return (
    <>
      <div
        ref={box}
        role="img"
        aria-label={`${props.title}. Latest: ${latest.join(', ')}.`}
        className="w-full min-w-0"
      />
      <Legend {...props} at={at} />
    </>
  )
}
