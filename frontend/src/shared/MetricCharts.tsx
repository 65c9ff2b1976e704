import type { Course, Metrics } from '~/api/types'
import { bytesPerSecond, count, perSecond, seconds } from '~/lib/format'
import { Card } from '~/ui/Card'
import type { Marker, Window } from '~/ui/chart-annotations'
import { type Series, TimeChart } from '~/ui/TimeChart'

type Props = {
  metrics: Pick<Metrics, 'times' | 'series' | 'window_seconds'>
  markers?: Marker[]
  windows?: Window[]
  /** Where the figures come from, as the end of "Rates and quantiles over 15 s, …". */
  source?: string
  /** What controls foretell, drawn as broken lines. */
  expected?: Course['expected']
}

/** The charts a compute or the fleet is judged by: WAL split, transactions, latencies, chains. */
export function MetricCharts({
  metrics,
  markers = [],
  windows = [],
  source = 'from Prometheus',
  expected = null,
}: Props) {
  const { times, series } = metrics
  const note = `Rates and quantiles over ${String(metrics.window_seconds)} s, ${source}.`
  const common = { times, markers, windows }
  const line = (label: string, color: string, name: Exclude<keyof typeof series, `wal_${string}`>): Series[] => [
    { label, color, values: series[name] },
    ...(expected ? [{ label: `${label} expected`, color, values: expected[name], dashed: true }] : []),
  ]
  return (
    <div className="grid gap-4 lg:grid-cols-2">
      <Card title="WAL written" note={`Bytes a second, page images above the rest. ${note}`}>
        <TimeChart
          {...common}
          title="WAL bytes a second"
          stacked
          binary
          format={bytesPerSecond}
          series={[
            { label: 'Rest', color: '--chart-rest', values: series.wal_rest_bytes_per_second },
            { label: 'Page images', color: '--chart-images', values: series.wal_image_bytes_per_second },
            ...(expected
              ? [
                  {
                    label: 'All expected',
                    color: '--text',
                    values: expected.wal_bytes_per_second,
                    dashed: true,
                    overlay: true,
                  },
                ]
              : []),
          ]}
        />
      </Card>
      <Card title="Transactions" note={`Committed a second. ${note}`}>
        <TimeChart
          {...common}
          title="Transactions a second"
          format={(value) => perSecond(value)}
          series={line('Transactions', '--chart-rest', 'transactions_per_second')}
        />
      </Card>
      <Card title="Commit latency" note={`WAL received until fsynced by a majority of safekeepers. ${note}`}>
        <TimeChart
          {...common}
          title="Commit latency"
          format={seconds}
          series={[
            ...line('p50', '--chart-p50', 'commit_p50_seconds'),
            ...line('p99', '--chart-p99', 'commit_p99_seconds'),
          ]}
        />
      </Card>
      <Card title="Storage read latency" note={`GetPage as the compute sees it. ${note}`}>
        <TimeChart
          {...common}
          title="Storage read latency"
          format={seconds}
          series={[
            ...line('p50', '--chart-p50', 'storage_read_p50_seconds'),
            ...line('p99', '--chart-p99', 'storage_read_p99_seconds'),
          ]}
        />
      </Card>
      <Card
        className="lg:col-span-2"
        title="Chain length at read"
        note={`Deltas redone to make a page, p99. ${note}`}
      >
        <TimeChart
          {...common}
          title="Chain length at read, p99"
          format={count}
          series={line('p99', '--chart-p99', 'chain_length_p99')}
        />
      </Card>
    </div>
  )
}
