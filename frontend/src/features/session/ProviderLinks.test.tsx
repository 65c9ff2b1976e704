import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { cleanup, render, screen, waitFor } from '@testing-library/react'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'

import { ProviderLinks } from './ProviderLinks'
import { startUrl } from './queries'

const { get } = vi.hoisted(() => ({ get: vi.fn() }))
vi.mock('openapi-fetch', () => ({ default: () => ({ GET: get }) }))

beforeEach(() => get.mockReset())
afterEach(cleanup)

const show = (then: string) =>
  render(
    <QueryClientProvider client={new QueryClient()}>
      <ProviderLinks then={then} />
    </QueryClientProvider>,
  )

it('has a way to each provider, and back to the page that was asked for', async () => {
  const providers = [{ id: 'main', name: 'Example Identity', start_url: '/api/v2/auth/oidc/main/start' }]
  get.mockResolvedValue({ data: { providers }, response: new Response(null, { status: 200 }) })
  show('/projects/p-1?tab=a&b=c')
  expect(await screen.findByRole('link', { name: 'Sign in with Example Identity' })).toHaveAttribute(
    'href',
    '/api/v2/auth/oidc/main/start?next=%2Fprojects%2Fp-1%3Ftab%3Da%26b%3Dc',
  )
})

it('keeps what an address asks for already', () => {
  const provider = { id: 'x', name: 'X', start_url: '/start?a=1' }
  expect(startUrl(provider, '/projects')).toBe('/start?a=1&next=%2Fprojects')
})

it('shows nothing where the API knows none, and says where it cannot tell', async () => {
  get.mockResolvedValueOnce({ error: {}, response: new Response(null, { status: 404 }) })
  const { container } = show('/')
  await waitFor(() => {
    expect(get).toHaveBeenCalledOnce()
  })
  expect(container).toBeEmptyDOMElement()
  cleanup()

  get.mockResolvedValueOnce({
    error: { message: 'the database is away' },
    response: new Response(null, { status: 503 }),
  })
  show('/')
  expect(await screen.findByRole('status')).toHaveTextContent('the database is away')
})
