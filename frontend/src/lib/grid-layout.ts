/** Where the squares of a dense grid lie. Pure; lengths are CSS pixels, squares count from 0 in reading order. */

export type GridLayout = {
  count: number
  columns: number
  rows: number
  size: number
  pitch: number
  width: number
  height: number
}

const GAP = 2

/** Squares large enough for a sign up to a few thousand, then as small as a finger on the mouse can hit. */
export function squareSize(total: number): number {
  return total <= 2_500 ? 18 : 11
}

export function layoutGrid(count: number, width: number, size: number): GridLayout {
  const pitch = size + GAP
  const columns = Math.max(1, Math.floor((width + GAP) / pitch))
  const rows = Math.ceil(count / columns)
  return { count, columns, rows, size, pitch, width, height: Math.max(0, rows * pitch - GAP) }
}

export function squareAt(layout: GridLayout, index: number): { x: number; y: number } {
  return { x: (index % layout.columns) * layout.pitch, y: Math.floor(index / layout.columns) * layout.pitch }
}

/** The square below a point, or null between squares and past the last. */
export function indexAt(layout: GridLayout, x: number, y: number): number | null {
  const column = Math.floor(x / layout.pitch)
  const row = Math.floor(y / layout.pitch)
  const inSquare = x - column * layout.pitch < layout.size && y - row * layout.pitch < layout.size
  if (x < 0 || y < 0 || column >= layout.columns || !inSquare) return null
  const index = row * layout.columns + column
  return index < layout.count ? index : null
}

/** Where a key takes the cursor; null for keys that do not move it. The edges hold. */
export function moveTo(layout: GridLayout, from: number, key: string): number | null {
  const last = layout.count - 1
  const within = (index: number) => (index >= 0 && index <= last ? index : from)
  switch (key) {
    case 'ArrowLeft':
      return within(from - 1)
    case 'ArrowRight':
      return within(from + 1)
    case 'ArrowUp':
      return within(from - layout.columns)
    case 'ArrowDown':
      return within(from + layout.columns)
    case 'Home':
      return 0
    case 'End':
      return last
    default:
      return null
  }
}
