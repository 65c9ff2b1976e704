import { encodeQR } from 'qr'

/** What has to stay light around the modules, in modules (ISO/IEC 18004: four). */
export const QUIET_ZONE = 4

/**
 * A text as a QR code: `size` in modules to a side, the quiet zone with it, and `path`, the dark modules as the data of
 * an SVG path in units of one module. Throws an Error for a text of more than 2331 bytes.
 */
export function qrCode(text: string): { size: number; path: string } {
  const rows = encodeQR(text, 'raw', { ecc: 'medium', border: QUIET_ZONE })
  return { size: rows.length, path: rows.map(runs).join('') }
}

/** Neighbours in a row as one rectangle: between two of them a browser may draw a light line. */
function runs(row: boolean[], y: number): string {
  let path = ''
  for (let x = 0; x < row.length; x += 1) {
    if (!row[x]) continue
    const from = x
    while (row[x + 1]) x += 1
    const width = x + 1 - from
    path += `M${from} ${y}h${width}v1h-${width}z`
  }
  return path
}
