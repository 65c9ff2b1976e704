import { useMemo } from 'react'

import { qrCode } from './qr-code'

const PIXELS_PER_MODULE = 4

/**
 * A QR code of a text. Dark on white in both themes, as many cameras read no light modules on a dark ground. All of it
 * is in attributes, as the page's policy refuses inline styles.
 */
export function QrCode({ text, label }: { text: string; label: string }) {
  const { size, path } = useMemo(() => qrCode(text), [text])
  return (
    <svg
      role="img"
      aria-label={label}
      viewBox={`0 0 ${size} ${size}`}
      width={size * PIXELS_PER_MODULE}
      height={size * PIXELS_PER_MODULE}
      shapeRendering="crispEdges"
      className="h-auto max-w-full rounded-md"
    >
      <rect width={size} height={size} fill="#ffffff" />
      <path d={path} fill="#000000" />
    </svg>
  )
}
