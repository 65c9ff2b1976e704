import { cleanup, fireEvent, render, screen } from '@testing-library/react'
import { afterEach, expect, it, vi } from 'vitest'

import { client } from '~/api/client'
import type { Branch } from '~/api/types'

import { ConnectionString } from './ConnectionString'

vi.mock('~/api/client', () => ({ client: { GET: vi.fn() }, unwrap: (answer: unknown) => answer }))
afterEach(cleanup)

const PEM = '-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n'

type Query = { role_name: string; database_name: string; pooled: boolean }
type Asked = { query: Query; say: (uri: string) => void }

/** Strings are said when the test says them. */
function show(): Asked[] {
  const asked: Asked[] = []
  vi.mocked(client.GET).mockImplementation(((path: string, options?: { params: { query: Query } }) => {
    if (path.endsWith('/roles')) return Promise.resolve({ roles: [{ name: 'app_owner' }, { name: 'reporter' }] })
    if (path.endsWith('/databases'))
      return Promise.resolve({ databases: [{ name: 'appdb', owner_name: 'app_owner' }] })
    if (path.endsWith('/certificate_authority')) return Promise.resolve({ certificate_authority: { pem: PEM } })
    return new Promise((resolve) => {
      asked.push({
        query: options?.params.query as Query,
        say: (uri) => {
          resolve({ uri })
        },
      })
    })
  }) as never)
  render(<ConnectionString projectId="p" branch={{ id: 'br-1', name: 'main' } as Branch} />)
  fireEvent.click(screen.getByRole('button', { name: 'Show connection string' }))
  return asked
}

const pooled = () => screen.findByRole('checkbox', { name: /^Pooled/ })

it('shows what was chosen at once, and never the string of another choice', async () => {
  const asked = show()
  fireEvent.click(await pooled())
  expect(await pooled()).toBeChecked()
  await vi.waitFor(() => {
    expect(asked).toHaveLength(2)
  })
  // The answers come the other way round.
  asked[1]?.say('postgresql://pooled')
  expect(await screen.findByText('postgresql://pooled')).toBeInTheDocument()
  asked[0]?.say('postgresql://direct')
  await Promise.resolve()
  expect(screen.queryByText('postgresql://direct')).toBeNull()
  expect(asked[1]?.query).toEqual({
    branch_id: 'br-1',
    role_name: 'app_owner',
    database_name: 'appdb',
    pooled: true,
  })
})

it('can be copied only once the string is known', async () => {
  const asked = show()
  await pooled()
  expect(screen.queryByRole('button', { name: /^Copy/ })).toBeNull()
  asked[0]?.say('postgresql://direct')
  expect(await screen.findByRole('button', { name: 'Copy connection string' })).toBeInTheDocument()
})

it('gives the CA to a client that verifies the server', async () => {
  const asked = show()
  await pooled()
  asked[0]?.say('postgresql://localhost/appdb?sslmode=require')
  fireEvent.click(await screen.findByRole('checkbox', { name: /^Verify the server/ }))
  expect(screen.getByText(/sslmode=verify-full&sslrootcert=weir-ca\.pem/)).toBeInTheDocument()
  const file = screen.getByRole('link', { name: 'weir-ca.pem' })
  expect(file).toHaveAttribute('download', 'weir-ca.pem')
  const pem = decodeURIComponent(file.getAttribute('href')?.split(',')[1] ?? '')
  expect(pem).toBe(PEM)
})
