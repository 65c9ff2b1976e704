import { expect, it } from 'vitest'

import { type Client, CLIENTS, snippet } from './connect-snippets'

const URI = 'postgresql://app:a%22b%24c@localhost:7432/appdb?options=endpoint%3Dep-1-pooler&sslmode=require'

it.each(Object.keys(CLIENTS) as Client[])('keeps every part of the address for %s', (client) => {
  expect(snippet(client, URI)).toContain(URI.slice('postgresql:'.length))
})

it('names the driver to SQLAlchemy and nothing else', () => {
  expect(snippet('sqlalchemy', URI)).toContain('"postgresql+psycopg://app')
  expect(snippet('psycopg', URI)).toContain('"postgresql://app')
})
