import { type KeyboardEvent, useEffect, useId, useRef, useState } from 'react'

import { type GridLayout, indexAt, layoutGrid, moveTo, squareAt } from '~/lib/grid-layout'

import { cssColor } from './chart-annotations'

export type Square = {
  id: string
  /** What is said of it on hover and to screen readers. */
  text: string
  /** A CSS custom property for the fill. */
  color: string
  /** One sign, so that the grid reads without colour. */
  glyph: string
}

type Props = {
  label: string
  squares: Square[]
  /** Side of a square in CSS pixels; signs are drawn from 16 on. */
  size: number
  selected: string | null
  onSelect: (id: string) => void
}

const SIGN_FROM = 16

function paint(
  canvas: HTMLCanvasElement,
  layout: GridLayout,
  squares: Square[],
  active: number | null,
  selected: string | null,
) {
  const context = canvas.getContext('2d')
  if (!context) return
  const scale = devicePixelRatio || 1
  canvas.width = Math.ceil(layout.width * scale)
  canvas.height = Math.ceil(layout.height * scale)
  context.scale(scale, scale)
  const colors = new Map<string, string>()
  const color = (name: string) => {
    const known = colors.get(name) ?? cssColor(name)
    colors.set(name, known)
    return known
  }
  context.textAlign = 'center'
  context.textBaseline = 'middle'
  context.font = `bold ${String(Math.round(layout.size * 0.68))}px sans-serif`
  squares.forEach((square, index) => {
    const { x, y } = squareAt(layout, index)
    context.fillStyle = color(square.color)
    context.fillRect(x, y, layout.size, layout.size)
    if (layout.size >= SIGN_FROM) {
      context.fillStyle = color('--panel')
      context.fillText(square.glyph, x + layout.size / 2, y + layout.size / 2 + 1)
    }
    if (index === active || square.id === selected) {
      context.strokeStyle = color('--text')
      context.lineWidth = 2
      context.strokeRect(x + 1, y + 1, layout.size - 2, layout.size - 2)
    }
  })
}

/** Thousands of things as squares on one canvas: hover names one, arrow keys walk, Enter or a click chooses. */
export function SquareGrid({ label, squares, size, selected, onSelect }: Props) {
  const id = useId()
  const box = useRef<HTMLDivElement>(null)
  const canvas = useRef<HTMLCanvasElement>(null)
  const [width, setWidth] = useState(0)
  const [active, setActive] = useState<number | null>(null)
  const [themed, setThemed] = useState(0)
  const layout = layoutGrid(squares.length, width, size)
  const current = active == null ? null : squares[active]

  useEffect(() => {
    const element = box.current
    if (!element) return
    const resize = new ResizeObserver(() => {
      setWidth(element.clientWidth)
    })
    resize.observe(element)
    const theme = new MutationObserver(() => {
      setThemed((count) => count + 1)
    })
    theme.observe(document.documentElement, { attributeFilter: ['class'] })
    return () => {
      resize.disconnect()
      theme.disconnect()
    }
  }, [])

  useEffect(() => {
    if (canvas.current && width > 0)
      paint(canvas.current, layoutGrid(squares.length, width, size), squares, active, selected)
  }, [squares, width, size, active, selected, themed])

  function onKeyDown(event: KeyboardEvent) {
    if (event.key === 'Enter' || event.key === ' ') {
      if (current) onSelect(current.id)
    } else {
      const next = moveTo(layout, active ?? -1, event.key)
      if (next == null) return
      setActive(Math.max(0, next))
    }
    event.preventDefault()
  }

  return (
    <div
      ref={box}
      role="listbox"
      aria-label={label}
      tabIndex={0}
      aria-activedescendant={current ? `${id}-active` : undefined}
      className="relative w-full"
      onKeyDown={onKeyDown}
      onFocus={() => {
        setActive(
          (at) =>
            at ??
            Math.max(
              0,
              squares.findIndex((square) => square.id === selected),
            ),
        )
      }}
      onBlur={() => {
        setActive(null)
      }}
    >
      <canvas
        ref={canvas}
        aria-hidden
        className="block cursor-pointer"
        style={{ width: layout.width, height: layout.height }}
        onMouseMove={(event) => {
          setActive(indexAt(layout, event.nativeEvent.offsetX, event.nativeEvent.offsetY))
        }}
        onMouseLeave={() => {
          setActive(null)
        }}
        onClick={(event) => {
          const hit = indexAt(layout, event.nativeEvent.offsetX, event.nativeEvent.offsetY)
          const square = hit == null ? undefined : squares[hit]
          if (square) onSelect(square.id)
        }}
      />
      {/* Only the option at the cursor is in the document; its place among all is said by posinset and setsize. */}
      <span
        id={`${id}-active`}
        role="option"
        className={
          current
            ? 'pointer-events-none absolute z-20 max-w-72 rounded-md border border-line bg-panel px-2 py-1 text-xs shadow-lg'
            : 'sr-only'
        }
        style={current && active != null ? tipPlace(layout, active) : undefined}
        aria-selected={current != null && current.id === selected}
        aria-posinset={(active ?? 0) + 1}
        aria-setsize={squares.length}
      >
        {current ? current.text : `${String(squares.length)} computes; arrow keys walk, Enter opens one`}
      </span>
    </div>
  )
}

/** Below the square, held within the width. */
function tipPlace(layout: GridLayout, index: number): { left: number; top: number } {
  const { x, y } = squareAt(layout, index)
  return { left: Math.max(0, Math.min(x, layout.width - 240)), top: y + layout.pitch + 2 }
}
