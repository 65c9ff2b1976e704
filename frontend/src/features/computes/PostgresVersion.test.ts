import { describe, expect, it } from 'vitest'

import { versionHint } from './PostgresVersion'

const versions = (running: string | null, wanted: string | null, installed: string | null) => ({
  postgres_version: running,
  wanted_postgres_version: wanted,
  installed_postgres_version: installed,
})

describe('the hint about minors', () => {
  it('says that a newer minor is installed, and that a restart does not take it', () => {
    expect(versionHint(versions('15.18', '15.18', '15.20'))).toBe('15.20 is installed; a restart stays on 15.18')
    expect(versionHint(versions('15.20', '15.20', '15.20'))).toBeUndefined()
    expect(versionHint(versions('15.20', '15.20', '15.18'))).toBeUndefined()
  })

  it('says what the next start brings, before anything else', () => {
    expect(versionHint(versions('15.18', '15.20', '15.20'))).toBe('Postgres 15.20 at the next start')
  })

  it('says nothing of a compute that has never run', () => {
    expect(versionHint(versions(null, null, '15.20'))).toBeUndefined()
  })
})
