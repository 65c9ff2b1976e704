/** The statistics behind a verdict, as they are kept with the evidence. Stored JSON: read with care, never assumed. */

export type FigureAnalysis = {
  name: string
  answer: string
  /** A sentence with before, after, effect and interval. */
  says: string
  /** Ratios of the effect, above 1 is worse; null for a figure that could not be measured. */
  ratio: number | null
  low: number | null
  high: number | null
}

export type Analysis = {
  figures: FigureAnalysis[]
  controls: string[]
  alpha: number | null
  alphaSpent: number | null
  settle: string | null
  method: string | null
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const text = (value: unknown): string | null => (typeof value === 'string' && value !== '' ? value : null)
const number = (value: unknown): number | null => (typeof value === 'number' && Number.isFinite(value) ? value : null)

function readFigure(value: unknown): FigureAnalysis[] {
  if (!isRecord(value)) return []
  const name = text(value.name)
  const says = text(value.says)
  if (!name || !says) return []
  return [
    {
      name,
      says,
      answer: text(value.answer) ?? 'inconclusive',
      ratio: number(value.ratio),
      low: number(value.low),
      high: number(value.high),
    },
  ]
}

/** Null when no comparison with controls was made: the verdict then rests on its bounds alone. */
export function readAnalysis(stored: Record<string, unknown>): Analysis | null {
  const figures = Array.isArray(stored.figures) ? stored.figures.flatMap(readFigure) : []
  const settle = isRecord(stored.settle) ? text(stored.settle.text) : null
  if (figures.length === 0 && settle === null) return null
  return {
    figures,
    settle,
    controls: Array.isArray(stored.controls)
      ? stored.controls.filter((id): id is string => typeof id === 'string')
      : [],
    alpha: number(stored.alpha),
    alphaSpent: number(stored.alpha_spent),
    method: text(stored.method),
  }
}

/** What the error budget means, in one sentence. */
export function alphaText({ alpha, alphaSpent }: Analysis): string | null {
  if (alpha === null || alphaSpent === null) return null
  const share = (value: number) =>
    `${Number((value * 100).toPrecision(2)).toLocaleString('en-GB', { maximumFractionDigits: 6 })} %`
  return (
    `A compute that is no worse is called worse in at most ${share(alpha)} of rollouts, over all figures and looks; ` +
    `${share(alphaSpent)} of that has been spent so far.`
  )
}
