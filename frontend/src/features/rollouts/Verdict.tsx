import type { Evidence } from '~/api/types'
import { stateText } from '~/shared/states'
import { IntervalPlot } from '~/ui/IntervalPlot'

import { alphaText, type Analysis, readAnalysis } from './verdict-analysis'

const WORDS = {
  pass: { title: 'Pass', tone: 'border-good', means: 'It is surely not worse than what is tolerated.' },
  inconclusive: {
    title: 'Inconclusive',
    tone: 'border-warn',
    means: 'The measurement cannot tell. It holds the wave and is never promoted by itself.',
  },
  regress: {
    title: 'Regressed',
    tone: 'border-bad',
    means: 'It got worse: the compute goes back by the same record in reverse.',
  },
} as const

/** What passed by bounds alone was compared with nothing. */
const BOUNDS_HOLD = 'Every hard bound holds. It was not compared with computes that were not switched.'

const TONES = { pass: 'good', inconclusive: 'warn', regress: 'bad' } as const

function Figures({ analysis }: { analysis: Analysis }) {
  const plotted = analysis.figures.flatMap(({ name, answer, ratio, low, high }) =>
    ratio === null ? [] : [{ label: stateText(name), ratio, low, high, tone: TONES[answer as keyof typeof TONES] }],
  )
  const alpha = alphaText(analysis)
  return (
    <div className="mt-3 grid gap-3">
      <IntervalPlot intervals={plotted} />
      <ul className="list-disc space-y-0.5 pl-5 text-sm">
        {analysis.figures.map((figure) => (
          <li key={figure.name}>{figure.says}.</li>
        ))}
      </ul>
      {alpha && <p className="text-xs text-muted">{alpha}</p>}
      {(analysis.method ?? analysis.controls.length > 0) && (
        <details className="text-xs text-muted">
          <summary className="cursor-pointer">How it was judged</summary>
          {analysis.method && <p className="mt-1">{analysis.method}.</p>}
          {analysis.controls.length > 0 && (
            <p className="mt-1 break-words">Controls, not switched meanwhile: {analysis.controls.join(', ')}.</p>
          )}
        </details>
      )}
    </div>
  )
}

/** The verdict in words: what it means, on what it rests, and what would settle one that cannot tell. */
export function Verdict({ evidence }: { evidence: Evidence }) {
  const words = WORDS[evidence.verdict]
  const analysis = readAnalysis(evidence.analysis)
  const compared = analysis !== null && analysis.figures.length > 0
  return (
    <div className={`mb-4 border-l-4 pl-3 ${words.tone}`}>
      <h3 className="font-semibold">{words.title}</h3>
      <p className="text-sm text-muted">{evidence.verdict === 'pass' && !compared ? BOUNDS_HOLD : words.means}</p>
      {(!compared || evidence.verdict === 'regress') && (
        <p className="mt-1 text-sm first-letter:uppercase">{evidence.reason}</p>
      )}
      {analysis?.settle && (
        <p className="mt-2 rounded-md bg-warn-soft px-3 py-2 text-sm text-warn">
          <strong>What would settle it:</strong> {analysis.settle}.
        </p>
      )}
      {compared && <Figures analysis={analysis} />}
      {evidence.bounds.length > 0 && (
        <ul aria-label="Hard bounds" className="mt-3 space-y-0.5 text-sm">
          {evidence.bounds.map((bound) => (
            <li key={bound.name} className={bound.ok ? 'text-muted' : 'font-medium text-bad'}>
              <span aria-hidden>{bound.judged ? (bound.ok ? '✓' : '✗') : '–'}</span>{' '}
              <span className="sr-only">{bound.judged ? (bound.ok ? 'holds:' : 'broken:') : 'not judged:'}</span>{' '}
              {bound.detail}
            </li>
          ))}
        </ul>
      )}
    </div>
  )
}
