import { describe, expect, it } from 'vitest'

import { alphaText, readAnalysis } from './verdict-analysis'

const figure = {
  name: 'commit_p99',
  answer: 'inconclusive',
  says: 'commit p99 went from 8 ms to 9 ms',
  ratio: 1.12,
  low: 0.9,
  high: 1.4,
  p_value: 0.2,
}

describe('the statistics of a verdict', () => {
  it('are read from what is stored, whatever else is there', () => {
    const analysis = readAnalysis({
      figures: [figure, { name: 'broken' }, 7],
      settle: { text: 'about 4 min more of bake' },
      controls: ['ep-a', 3],
      alpha: 0.01,
      alpha_spent: 0.0002,
    })
    expect(analysis?.figures.map((each) => each.name)).toEqual(['commit_p99'])
    expect(analysis?.settle).toBe('about 4 min more of bake')
    expect(analysis?.controls).toEqual(['ep-a'])
  })

  it('are absent where only bounds were checked', () => {
    expect(readAnalysis({})).toBeNull()
    expect(readAnalysis({ figures: [] })).toBeNull()
  })

  it('keep an infinite bound, which JSON cannot hold, as unknown', () => {
    expect(readAnalysis({ figures: [{ ...figure, low: null }] })?.figures[0]?.low).toBeNull()
  })

  it('say what may go wrong and how much of it is used up', () => {
    const analysis = readAnalysis({ figures: [figure], alpha: 0.01, alpha_spent: 0.00021 })
    expect(analysis && alphaText(analysis)).toContain('at most 1 % of rollouts')
    expect(analysis && alphaText(analysis)).toContain('0.021 % of that')
  })
})
