import type * as z from 'zod/mini'

import { type Bounds, boundsOf } from '~/api/bounds'

/** A number that a person types: bounds as the API has them, and so many of `unit` for one of the API's. */
export type NumberText = { bounds: Bounds; unit: string; per: number; required: boolean }

/** Has to be typed where the API has a value for it otherwise, so that nothing is sent that is not on the screen. */
export function numberText(
  schema: z.core.$ZodType,
  unit: string,
  { per = 1, required }: { per?: number; required?: boolean } = {},
): NumberText {
  const bounds = boundsOf(schema)
  return { bounds, unit, per, required: required ?? bounds.initial !== undefined }
}

/** The API's own value as a person types it. */
export function initialText({ bounds: { initial }, per }: NumberText): string {
  return initial === undefined ? '' : String(initial * per)
}

/** A number as the API takes it; undefined for an empty field that may be; or why it is none. */
export function readNumber(
  text: string,
  { bounds, unit, per, required }: NumberText,
): { value: number | undefined } | { error: string } {
  if (text.trim() === '' && !required) return { value: undefined }
  const typed = Number(text.trim().replace(',', '.'))
  const value = bounds.whole ? Math.round(typed / per) : typed / per
  const within = bounds.above ? typed / per > bounds.low : typed / per >= bounds.low
  if (text.trim() !== '' && Number.isFinite(typed) && within && typed / per <= bounds.high) return { value }
  return { error: boundsText(bounds, per, unit) }
}

function boundsText({ low, high, above }: Bounds, per: number, unit: string): string {
  const [from, to] = [String(low * per), String(high * per)]
  if (low === -Infinity) return `A number, in ${unit}.`
  if (high >= Number.MAX_SAFE_INTEGER) return `${above ? 'More than' : 'At least'} ${from}, in ${unit}.`
  return `A number ${above ? 'above' : 'from'} ${from} to ${to} ${unit}.`
}
