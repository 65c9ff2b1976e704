import { expect, it } from 'vitest'
import * as z from 'zod/mini'

import { initialText, numberText, readNumber } from './number-text'

const share = numberText(z._default(z.optional(z.number().check(z.gte(0), z.lte(1))), 0.02), 'per cent', { per: 100 })
const cap = numberText(z.nullish(z.int().check(z.gte(1))), 'computes')

it('reads what is typed as the API takes it, and starts with the API’s own value', () => {
  expect(initialText(share)).toBe('2')
  expect(readNumber(' 2,5 ', share)).toEqual({ value: 0.025 })
  expect(readNumber('', cap)).toEqual({ value: undefined })
  expect(readNumber('2.6', cap)).toEqual({ value: 3 })
})

it('names the bounds that a number breaks, in the unit that is typed', () => {
  expect(readNumber('101', share)).toEqual({ error: 'A number from 0 to 100 per cent.' })
  expect(readNumber('', share)).toEqual({ error: 'A number from 0 to 100 per cent.' })
  expect(readNumber('0.6', cap)).toEqual({ error: 'At least 1, in computes.' })
  expect(readNumber('soon', numberText(z.number().check(z.gt(0)), 'GiB'))).toEqual({ error: 'More than 0, in GiB.' })
})
