import type { ComputeSummary } from '~/api/types'
import { isNewer } from '~/lib/format'
import { Badge } from '~/ui/Badge'

type Versions = Pick<ComputeSummary, 'postgres_version' | 'wanted_postgres_version' | 'installed_postgres_version'>

/** What differs from the minor that runs, in a sentence; nothing when all is as it should be. */
export function versionHint({
  postgres_version: running,
  wanted_postgres_version: wanted,
  installed_postgres_version: installed,
}: Versions): string | undefined {
  if (running && wanted && wanted !== running) return `Postgres ${wanted} at the next start`
  if (running && installed && isNewer(installed, running))
    return `${installed} is installed; a restart stays on ${running}`
  return undefined
}

/** The minor of Postgres that a compute runs, or ran last, and whether a newer one is there. */
export function PostgresVersion({ compute }: { compute: Versions }) {
  const version = compute.postgres_version
  if (!version) return <>—</>
  const hint = versionHint(compute)
  return hint ? (
    <Badge tone="accent" title={hint}>
      Postgres {version} ↑
    </Badge>
  ) : (
    <span className="whitespace-nowrap">Postgres {version}</span>
  )
}
