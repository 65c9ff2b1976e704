import { cleanup, render, screen } from '@testing-library/react'
import decodeQR from 'qr/decode.js'
import { afterEach, expect, it } from 'vitest'

import { expectAccessible } from '~/test-accessible'

import { QUIET_ZONE } from './qr-code'
import { QrCode } from './QrCode'

afterEach(cleanup)

const SECRET = 'JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP'
const of = (person: string) =>
  `otpauth://totp/Weir:${encodeURIComponent(person)}?digits=6&secret=${SECRET}&algorithm=SHA1&issuer=Weir&period=30`

const drawn = () => screen.getByRole('img', { name: 'QR code' })

/** The picture as a browser paints it on a black page, `scale` pixels to a module: RGBA. */
function pixels(svg: Element, scale: number) {
  const [, , across, down] = (svg.getAttribute('viewBox') ?? '').split(' ').map(Number)
  const width = Number(across) * scale
  const height = Number(down) * scale
  const data = new Uint8ClampedArray(width * height * 4)
  const fill = (x: number, y: number, w: number, h: number, value: number) => {
    for (let row = y * scale; row < (y + h) * scale; row += 1) {
      const start = (row * width + x * scale) * 4
      data.fill(value, start, start + w * scale * 4)
    }
  }
  const ground = svg.querySelector('rect')
  expect(ground).toHaveAttribute('fill', '#ffffff')
  fill(0, 0, Number(ground?.getAttribute('width')), Number(ground?.getAttribute('height')), 255)
  const modules = svg.querySelector('path')
  expect(modules).toHaveAttribute('fill', '#000000')
  const path = modules?.getAttribute('d') ?? ''
  expect(path).toMatch(/^(M\d+ \d+h\d+v1h-\d+z)+$/)
  for (const [, x, y, right, left] of path.matchAll(/M(\d+) (\d+)h(\d+)v1h-(\d+)z/g)) {
    expect(right).toBe(left)
    fill(Number(x), Number(y), Number(right), 1, 0)
  }
  return { width, height, data }
}

it.each(['ada@example.org', `${'long'.repeat(16)}@${'sub.'.repeat(40)}example.org`, 'ä+ö@example.org'])(
  'draws what a reader of QR codes reads as the text, for %s',
  (person) => {
    render(<QrCode text={of(person)} label="QR code" />)
    expect(decodeQR(pixels(drawn(), 4), { timeLimit: 10_000 })).toBe(of(person))
  },
)

it('leaves four light modules on each side', () => {
  render(<QrCode text={of('ada@example.org')} label="QR code" />)
  const { width, data } = pixels(drawn(), 1)
  const dark = [...Array(width * width).keys()].filter((at) => data[at * 4] === 0)
  const columns = dark.map((at) => at % width)
  const rows = dark.map((at) => Math.floor(at / width))
  expect(QUIET_ZONE).toBe(4)
  for (const places of [columns, rows]) {
    expect([Math.min(...places), Math.max(...places)]).toEqual([4, width - 5])
  }
})

it('has a name, and nothing that the policy of the page refuses', async () => {
  const { container } = render(<QrCode text={of('ada@example.org')} label="QR code" />)
  await expectAccessible()
  expect(container.querySelectorAll('[style], style, image, use, foreignObject')).toHaveLength(0)
  expect(container.innerHTML).not.toMatch(/data:|href/)
  expect(container.textContent).toBe('')
  expect(drawn().outerHTML).not.toContain(SECRET)
})
