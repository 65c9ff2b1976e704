/** What is offered, in seconds; 0 is never. */
const OFFERED = [0, 60, 300, 900, 3_600, 21_600, 86_400]

const UNITS = [
  { seconds: 86_400, word: 'd' },
  { seconds: 3_600, word: 'h' },
  { seconds: 60, word: 'min' },
]

/** An idle time in words, in the largest unit of which it is a whole number. */
export function idleTimeText(seconds: number): string {
  if (seconds <= 0) return 'never'
  const unit = UNITS.find((each) => seconds % each.seconds === 0)
  return unit ? `after ${String(seconds / unit.seconds)} ${unit.word}` : `after ${String(seconds)} s`
}

/** What a form offers, with the time of now among it. */
export function idleTimes(now: number): number[] {
  return [...new Set([...OFFERED, Math.max(now, 0)])].sort((a, b) => a - b)
}
