import axe from 'axe-core'
import { expect } from 'vitest'

/** Fails with each rule of axe that what is on the page breaks, and with where. A drawn page alone has colours and sizes to look at. */
export async function expectAccessible(): Promise<void> {
  const { violations } = await axe.run(document.body, {
    rules: { 'color-contrast': { enabled: false }, region: { enabled: false } },
  })
  expect(violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(', ')}`)).toEqual([])
}
