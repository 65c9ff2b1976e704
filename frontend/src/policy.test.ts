import { cleanup, render, screen } from '@testing-library/react'
import { createElement } from 'react'
import { afterEach, expect, it } from 'vitest'
import { config } from 'zod'

import { Dialog } from '~/ui/Dialog'

afterEach(cleanup)

it('gives the style element of the dialogs the nonce of the page, and keeps zod from making functions of text', async () => {
  const meta = document.createElement('meta')
  meta.setAttribute('property', 'csp-nonce')
  meta.setAttribute('nonce', 'nonce-of-the-test')
  document.head.append(meta)
  await import('./policy')
  const onClose = () => undefined
  render(createElement(Dialog, { title: 'Any', description: 'Of the test', onClose, children: 'within' }))
  expect(screen.getByText('within')).toBeInTheDocument()
  const lock = [...document.querySelectorAll('style')].find((style) => style.textContent.includes('overflow: hidden'))
  expect(lock?.getAttribute('nonce')).toBe('nonce-of-the-test')
  expect(config().jitless).toBe(true)
})
