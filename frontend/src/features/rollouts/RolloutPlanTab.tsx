import { useQuery } from '@tanstack/react-query'

import { errorText } from '~/api/errors'
import type { Rollout } from '~/api/types'
import { bytesPerSecond, count, time } from '~/lib/format'
import { detailText } from '~/shared/audit-text'
import { stateText } from '~/shared/states'
import { Button } from '~/ui/Button'
import { Loading, Notice } from '~/ui/Notice'
import { Table } from '~/ui/Table'

import { ExcludedTable, PlanSummary } from './PlanView'
import { rolloutAuditQuery, rolloutDiffQuery, rolloutExclusionsQuery } from './queries'

function Diff({ rolloutId }: { rolloutId: string }) {
  const { data, error, isFetching, refetch } = useQuery(rolloutDiffQuery(rolloutId))
  return (
    <div className="mt-4">
      <Button busy={isFetching} onClick={() => void refetch()}>
        Compare with a plan made now
      </Button>
      {error && (
        <div className="mt-2">
          <Notice tone="bad">{errorText(error)}</Notice>
        </div>
      )}
      {data && (
        <div className="mt-3">
          <p className="mb-2 text-sm">
            Frozen {time(data.frozen_at)}: {count(data.computes_frozen)} computes,{' '}
            {bytesPerSecond(data.expected_wal_saved_bytes_per_second_frozen)} to save. Now: {count(data.computes_now)}{' '}
            computes, {bytesPerSecond(data.expected_wal_saved_bytes_per_second_now)}. {count(data.changes_total)}{' '}
            computes would be placed otherwise; nothing changes by that.
          </p>
          <Table
            caption="Frozen plan against now"
            rows={data.changes}
            rowKey={(row) => row.compute_id}
            empty="A plan made now would be the same."
            cards
            columns={[
              { key: 'change', header: 'Change', cell: (row) => stateText(row.change) },
              {
                key: 'compute',
                header: 'Project, compute',
                cell: (row) => (
                  <span>
                    {row.project_name} <code className="text-xs whitespace-nowrap">{row.compute_id}</code>
                  </span>
                ),
              },
              { key: 'cell', header: 'Cell', cell: (row) => row.cell },
              { key: 'reason', header: 'Why', cell: (row) => row.reason },
            ]}
          />
        </div>
      )}
    </div>
  )
}

/** The frozen plan, who was left out, and how a plan made now would differ. */
export function RolloutPlanTab({ rollout }: { rollout: Rollout }) {
  const exclusions = useQuery(rolloutExclusionsQuery(rollout.id))
  return (
    <>
      <PlanSummary plan={rollout.plan} />
      <Diff rolloutId={rollout.id} />
      {exclusions.data && exclusions.data.total > 0 && (
        <>
          <h3 className="mt-5 mb-1 font-medium">
            Left out (
            {exclusions.data.excluded.length < exclusions.data.total
              ? `the first ${count(exclusions.data.excluded.length)} of `
              : ''}
            {count(exclusions.data.total)})
          </h3>
          <ExcludedTable rows={exclusions.data.excluded} />
        </>
      )}
    </>
  )
}

export function RolloutAudit({ rolloutId }: { rolloutId: string }) {
  const { data, error } = useQuery(rolloutAuditQuery(rolloutId))
  if (error) return <Notice tone="bad">{errorText(error)}</Notice>
  if (!data) return <Loading what="audit log" />
  return (
    <Table
      caption="Audit log"
      rows={data.entries}
      rowKey={(row) => `${row.at}-${row.action}-${row.request_id ?? ''}`}
      empty="Nobody has touched this rollout."
      cards
      columns={[
        { key: 'at', header: 'When', cell: (row) => <span className="whitespace-nowrap">{time(row.at)}</span> },
        { key: 'actor', header: 'Who', cell: (row) => row.actor },
        { key: 'action', header: 'What', cell: (row) => stateText(row.action.replace('rollout.', '')) },
        {
          key: 'detail',
          header: 'Detail',
          cell: (row) => (
            <span className="line-clamp-3 text-xs" title={detailText(row.detail)}>
              {detailText(row.detail)}
            </span>
          ),
        },
      ]}
    />
  )
}
