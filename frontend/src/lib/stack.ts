/** Running sums, so that areas lie on top of each other; a gap in any part is a gap in the sum. */
export function stack(series: { values: (number | null)[] }[]): (number | null)[][] {
  const sums: (number | null)[][] = []
  series.forEach((part, index) => {
    const below = sums[index - 1]
    sums.push(
      part.values.map((value, at) => {
        const base = below ? (below[at] ?? null) : 0
        return value == null || base == null ? null : base + value
      }),
    )
  })
  return sums
}
