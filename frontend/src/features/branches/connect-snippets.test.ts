import { expect, it } from 'vitest'

import { type Client, CLIENTS, snippet, verifying } from './connect-snippets'

const URI = 'postgresql://app:a%22b%24c@localhost:7432/appdb?options=endpoint%3Dep-1-pooler&sslmode=require'

it.each(Object.keys(CLIENTS) as Client[])('keeps every part of the address for %s', (client) => {
  expect(snippet(client, URI)).toContain(URI.slice('postgresql:'.length))
})

it('names the driver to SQLAlchemy and nothing else', () => {
  expect(snippet('sqlalchemy', URI)).toContain('"postgresql+psycopg://app')
  expect(snippet('psycopg', URI)).toContain('"postgresql://app')
})

it('has a client that verifies ask for the CA once, and keeps the rest of the address', () => {
  const once = verifying(URI)
  expect(once).toBe(
    'postgresql://app:a%22b%24c@localhost:7432/appdb?options=endpoint%3Dep-1-pooler&sslmode=verify-full&sslrootcert=weir-ca.pem',
  )
  expect(verifying(once)).toBe(once)
})
