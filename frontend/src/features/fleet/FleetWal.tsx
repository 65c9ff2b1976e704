import { useQuery } from '@tanstack/react-query'
import { clsx } from 'clsx'

import { errorText } from '~/api/errors'
import { bytesPerSecond, computes, seconds } from '~/lib/format'
import { Card } from '~/ui/Card'
import { Loading, Notice } from '~/ui/Notice'
import { Stat, Stats } from '~/ui/Stat'
import { TimeChart } from '~/ui/TimeChart'

import { fleetWalQuery } from './queries'

function Region({
  region,
  times,
  note,
}: {
  region: {
    region_id: string
    computes: number
    wal_image_bytes_per_second: (number | null)[]
    wal_rest_bytes_per_second: (number | null)[]
  }
  times: number[]
  note: string
}) {
  return (
    <Card title={`Region ${region.region_id}`} note={`${computes(region.computes)}. ${note}`}>
      <TimeChart
        title={`WAL bytes a second of region ${region.region_id}`}
        times={times}
        stacked
        binary
        format={bytesPerSecond}
        height={140}
        series={[
          { label: 'Rest', color: '--chart-rest', values: region.wal_rest_bytes_per_second },
          { label: 'Page images', color: '--chart-images', values: region.wal_image_bytes_per_second },
        ]}
      />
    </Card>
  )
}

/** The fleet's WAL by region over time, and what image pushdown saves of it. */
export function FleetWal({ minutes }: { minutes: number }) {
  const { data, error } = useQuery(fleetWalQuery(minutes))
  if (error) return <Notice tone="bad">{errorText(error)}</Notice>
  if (!data) return <Loading what="WAL by region" />
  const { saved } = data
  const unknown = saved.computes_unknown > 0 ? `; of ${computes(saved.computes_unknown)} it is not known` : ''
  return (
    <>
      <Card title="Saved by image pushdown">
        <Stats>
          <Stat
            label="WAL saved"
            value={saved.computes === 0 ? 'nothing yet' : bytesPerSecond(saved.bytes_per_second)}
            note={
              saved.computes === 0
                ? 'no rollout has switched a compute that still has image pushdown'
                : `page images that ${computes(saved.computes)} logged when their rollouts were planned, from Prometheus then${unknown}`
            }
          />
        </Stats>
      </Card>
      <div className={clsx('grid gap-4', data.regions.length > 1 && 'lg:grid-cols-2')}>
        {data.regions.map((region) => (
          <Region
            key={region.region_id}
            region={region}
            times={data.times}
            note={`WAL bytes a second over ${seconds(data.window_seconds)}, page images above the rest, from Prometheus.`}
          />
        ))}
      </div>
    </>
  )
}
