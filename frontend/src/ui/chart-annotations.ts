import type uPlot from 'uplot'

export type Marker = { at: number; label: string }
export type Window = { from: number; to: number; label: string; shade: '--shade-before' | '--shade-after' }

export function cssColor(property: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(property).trim()
}

/** Shades windows and marks events behind the lines of a chart whose x axis is time in seconds. */
export function annotate(chart: uPlot, windows: Window[], markers: Marker[]): void {
  const { ctx, bbox } = chart
  const pixel = devicePixelRatio
  ctx.save()
  ctx.beginPath()
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height)
  ctx.clip()
  ctx.textAlign = 'left'
  for (const window of windows) {
    const left = chart.valToPos(window.from, 'x', true)
    const right = chart.valToPos(window.to, 'x', true)
    ctx.fillStyle = cssColor(window.shade)
    ctx.fillRect(left, bbox.top, right - left, bbox.height)
    ctx.fillStyle = cssColor('--muted')
    ctx.font = `${String(11 * pixel)}px sans-serif`
    ctx.fillText(window.label, Math.max(left, bbox.left) + 4 * pixel, bbox.top + 13 * pixel)
  }
  for (const marker of markers) {
    const x = chart.valToPos(marker.at, 'x', true)
    ctx.strokeStyle = cssColor('--text')
    ctx.setLineDash([4, 3])
    ctx.beginPath()
    ctx.moveTo(x, bbox.top)
    ctx.lineTo(x, bbox.top + bbox.height)
    ctx.stroke()
    ctx.fillStyle = cssColor('--text')
    ctx.font = `bold ${String(11 * pixel)}px sans-serif`
    // Beside the line, on the side where there is room.
    const room = bbox.left + bbox.width - x > ctx.measureText(marker.label).width + 6 * pixel
    ctx.textAlign = room ? 'left' : 'right'
    ctx.fillText(marker.label, x + (room ? 4 : -4) * pixel, bbox.top + 27 * pixel)
  }
  ctx.restore()
}
