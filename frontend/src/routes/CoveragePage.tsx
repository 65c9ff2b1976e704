import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useDeferredValue, useMemo } from 'react'

import type { FeatureCompute } from '~/api/types'
import { whoColumns } from '~/features/computes/columns'
import { FEATURE_NAMES, FEATURES } from '~/features/fleet/compute-features'
import { cellsQuery, type CoverageFilter, coverageQuery } from '~/features/fleet/queries'
import { parseCoverage } from '~/features/fleet/search'
import { RolloutLink } from '~/features/rollouts/RolloutLink'
import { ago, count, percent, time } from '~/lib/format'
import { PagedList } from '~/shared/PagedList'
import { PageHeader } from '~/shared/PageHeader'
import { useNow } from '~/shared/use-now'
import { Badge } from '~/ui/Badge'
import { Card } from '~/ui/Card'
import { SelectField, TextField } from '~/ui/Field'
import { Stat, Stats } from '~/ui/Stat'
import { Table } from '~/ui/Table'

function Filters({ filter, onFilter }: { filter: CoverageFilter; onFilter: (filter: CoverageFilter) => void }) {
  const { data } = useQuery(cellsQuery)
  const regions = [...new Set((data?.cells ?? []).map((cell) => cell.region_id))]
  const set = (change: Record<string, unknown>) => {
    onFilter(parseCoverage({ ...filter, ...change }))
  }
  return (
    <div className="mb-4 grid gap-x-3 sm:grid-cols-5">
      <SelectField
        label="Feature"
        value={filter.feature ?? 'image_pushdown'}
        onChange={(event) => {
          set({ feature: event.target.value })
        }}
      >
        {FEATURE_NAMES.map((name) => (
          <option key={name} value={name}>
            {FEATURES[name].name}
          </option>
        ))}
      </SelectField>
      <SelectField
        label="Has it"
        value={filter.has === undefined ? '' : String(filter.has)}
        onChange={(event) => {
          set({ has: event.target.value === '' ? undefined : event.target.value === 'true' })
        }}
      >
        <option value="">Has it or not</option>
        <option value="true">Has it</option>
        <option value="false">Has it not</option>
      </SelectField>
      <SelectField
        label="Region"
        value={filter.region ?? ''}
        onChange={(event) => {
          set({ region: event.target.value, cell: '' })
        }}
      >
        <option value="">All regions</option>
        {regions.map((region) => (
          <option key={region} value={region}>
            {region}
          </option>
        ))}
      </SelectField>
      <SelectField
        label="Cell"
        value={filter.cell ?? ''}
        onChange={(event) => {
          set({ cell: event.target.value })
        }}
      >
        <option value="">All cells</option>
        {data?.cells
          .filter((cell) => !filter.region || cell.region_id === filter.region)
          .map((cell) => (
            <option key={cell.cell} value={cell.cell}>
              {cell.cell}
            </option>
          ))}
      </SelectField>
      <TextField
        label="Project or compute"
        type="search"
        value={filter.q ?? ''}
        onChange={(event) => {
          set({ q: event.target.value })
        }}
      />
    </div>
  )
}

function CoverageTable({ rows, feature, partial }: { rows: FeatureCompute[]; feature: string; partial: boolean }) {
  const now = useNow()
  return (
    <Table
      caption={`${feature} by compute`}
      rows={rows}
      rowKey={(row) => row.compute_id}
      empty="No compute matches."
      cards
      partial={partial}
      columns={[
        ...whoColumns<FeatureCompute>(
          (row) => row.compute_id,
          (row) => row.project_name,
          (row) => [row.region_id, row.cell],
        ),
        {
          key: 'has',
          header: 'Has it',
          sort: (row) => row.has,
          cell: (row) => (row.has ? <Badge tone="good">yes</Badge> : <Badge>no</Badge>),
        },
        {
          key: 'since',
          header: 'Since',
          sort: (row) => row.since && Date.parse(row.since),
          cell: (row) =>
            row.since ? (
              <span title={`${time(row.since)}${row.confirmed_at ? `, confirmed ${time(row.confirmed_at)}` : ''}`}>
                {ago(row.since, now)}
              </span>
            ) : (
              '—'
            ),
        },
        { key: 'why', header: 'Why not', sort: (row) => row.why_not, cell: (row) => row.why_not ?? '—' },
        {
          key: 'rollout',
          header: 'Rollout',
          cell: (row) =>
            row.rollout_id ? (
              <RolloutLink id={row.rollout_id} compute={row.compute_id}>
                open
              </RolloutLink>
            ) : (
              '—'
            ),
        },
      ]}
    />
  )
}

/** Which computes have a feature, since when, and why the rest has not. */
export function CoveragePage() {
  const filter = useSearch({ from: '/app/fleet/pushdown' })
  const navigate = useNavigate({ from: '/fleet/pushdown' })
  const query = useInfiniteQuery(coverageQuery(useDeferredValue(filter)))
  const { data } = query
  const { name } = FEATURES[filter.feature ?? 'image_pushdown']
  const rows = useMemo(() => data?.pages.flatMap((page) => page.computes) ?? [], [data])
  const counts = data?.pages[0]?.counts
  return (
    <>
      <PageHeader
        above={
          <Link to="/fleet" className="underline">
            Fleet
          </Link>
        }
        title={filter.feature === 'postgres_minor' ? 'Who runs the newest Postgres minor' : 'Who has image pushdown'}
        note="Which computes have it, since when, and why the rest has not: what is wanted of each, from the control plane’s own records."
      />
      <Card>
        <Filters
          filter={filter}
          onFilter={(next) => void navigate({ search: next, replace: true, resetScroll: false })}
        />
        {counts && (
          <div className="mb-4">
            <Stats>
              <Stat label="Computes" value={count(counts.computes)} note="that match, whether they have it or not" />
              <Stat
                label="Have it"
                value={count(counts.has)}
                note={percent(counts.computes ? counts.has / counts.computes : null)}
              />
              <Stat label="Have it not" value={count(counts.has_not)} note="each with its reason below" />
            </Stats>
          </div>
        )}
        <PagedList query={query} what="computes" shown={rows.length}>
          <CoverageTable rows={rows} feature={name} partial={query.hasNextPage} />
        </PagedList>
      </Card>
    </>
  )
}
