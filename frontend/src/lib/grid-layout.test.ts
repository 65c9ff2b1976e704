import { describe, expect, it } from 'vitest'

import { indexAt, layoutGrid, moveTo, squareAt } from './grid-layout'

describe('a grid of squares', () => {
  const layout = layoutGrid(10_000, 1_000, 11)

  it('holds every square within its width and height, and finds each again from its middle', () => {
    for (let index = 0; index < layout.count; index += 37) {
      const { x, y } = squareAt(layout, index)
      expect(x + layout.size).toBeLessThanOrEqual(layout.width)
      expect(y + layout.size).toBeLessThanOrEqual(layout.height)
      expect(indexAt(layout, x + 5, y + 5)).toBe(index)
    }
  })

  it('finds nothing between squares, outside, and past the last one', () => {
    const small = layoutGrid(5, 100, 18)
    expect(small.columns).toBe(5)
    expect(indexAt(small, 19, 5)).toBeNull()
    expect(indexAt(small, -1, 5)).toBeNull()
    expect(indexAt(small, 5, 25)).toBeNull()
    expect(indexAt(layoutGrid(7, 100, 18), 2 * 20 + 5, 25)).toBeNull()
  })

  it('never has fewer than one column', () => {
    expect(layoutGrid(3, 0, 18)).toMatchObject({ columns: 1, rows: 3 })
  })

  it('moves by arrow keys, and holds at the edges', () => {
    const grid = layoutGrid(12, 100, 18)
    expect(moveTo(grid, 0, 'ArrowDown')).toBe(5)
    expect(moveTo(grid, 10, 'ArrowDown')).toBe(10)
    expect(moveTo(grid, 0, 'ArrowLeft')).toBe(0)
    expect(moveTo(grid, 3, 'End')).toBe(11)
    expect(moveTo(grid, 3, 'a')).toBeNull()
  })
})
