import { expect, it } from 'vitest'

import { isMissingCode } from './missing-code'

it('tells code that does not come from an API that does not answer', () => {
  expect(isMissingCode(new TypeError('Failed to fetch dynamically imported module: http://x/a.js'))).toBe(true)
  expect(isMissingCode(new TypeError('error loading dynamically imported module: http://x/a.js'))).toBe(true)
  expect(isMissingCode(new TypeError('Importing a module script failed.'))).toBe(true)
  expect(isMissingCode(new TypeError('Failed to fetch'))).toBe(false)
})
