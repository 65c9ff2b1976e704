import type { Branch } from '~/api/types'
import { time } from '~/lib/format'
import { localField } from '~/lib/local-time'
import { SelectField, TextField } from '~/ui/Field'
import { Loading, Notice } from '~/ui/Notice'

import { BranchMark, HistoryStrip } from './HistoryStrip'
import type { Point } from './queries'
import type { ChosenPoint } from './use-point'

const POINTS_OFFERED = 6

type Props = {
  label: string
  /** What the newest state is called; null where it cannot be chosen. */
  head: string | null
  branch: Branch
  since: string
  point: Point
  chosen: ChosenPoint
  onPoint: (point: Point) => void
}

function Found({ chosen }: { chosen: ChosenPoint }) {
  const { found, checking } = chosen
  return (
    <p role="status" className="mb-3 min-h-5 text-xs text-muted">
      {found ? (
        <>
          Everything committed by{' '}
          <strong className="font-medium text-text">{found.timestamp ? time(found.timestamp) : 'then'}</strong>, LSN{' '}
          <code>{found.lsn}</code>.
        </>
      ) : (
        checking && 'Asking storage for this state…'
      )}
    </p>
  )
}

/** A state of a branch's past: by time, on the line of its history, by LSN, or where another branch was made. */
export function PointFields({ label, head, branch, since, point, chosen, onPoint }: Props) {
  const { history, now, refusal } = chosen
  const moment =
    point.from === 'timestamp'
      ? new Date(point.at).getTime()
      : chosen.found?.timestamp
        ? Date.parse(chosen.found.timestamp)
        : NaN
  const points = history?.branch_points.slice(-POINTS_OFFERED) ?? []
  return (
    <>
      <SelectField
        label={label}
        value={point.from}
        onChange={(event) => {
          const from = event.target.value as Point['from']
          onPoint({ from, at: from === 'lsn' ? (chosen.found?.lsn ?? '') : '' })
        }}
      >
        {head !== null && <option value="head">{head}</option>}
        <option value="timestamp">A point in time</option>
        <option value="lsn">A WAL position (LSN)</option>
      </SelectField>
      {point.from !== 'head' && (
        <>
          {chosen.historyError ? (
            <div className="mb-3">
              <Notice tone="bad">{chosen.historyError}</Notice>
            </div>
          ) : history ? (
            <HistoryStrip
              history={history}
              since={since}
              now={now}
              chosen={Number.isNaN(moment) ? null : moment}
              onChoose={(at) => {
                onPoint({ from: 'timestamp', at: localField(at) })
              }}
            />
          ) : (
            <Loading what={`history of ${branch.name}`} />
          )}
          {point.from === 'lsn' ? (
            <TextField
              label="LSN"
              required
              placeholder={history?.newest_lsn ?? '0/16B3748'}
              value={point.at}
              error={refusal}
              hint={history && `From ${history.oldest_lsn} to ${history.newest_lsn}.`}
              onChange={(event) => {
                onPoint({ from: 'lsn', at: event.target.value })
              }}
            />
          ) : (
            <TextField
              label={`Time (${Intl.DateTimeFormat().resolvedOptions().timeZone})`}
              required
              type="datetime-local"
              step={1}
              value={point.at}
              error={refusal}
              onChange={(event) => {
                onPoint({ from: 'timestamp', at: event.target.value })
              }}
            />
          )}
          <Found chosen={chosen} />
          {points.length > 0 && (
            <p className="mb-3 flex flex-wrap items-center gap-1.5 text-xs text-muted">
              <BranchMark /> Where a branch was made:
              {points.map((each) => (
                <button
                  key={each.branch_id}
                  type="button"
                  title={each.timestamp ? time(each.timestamp) : undefined}
                  className="rounded-md border border-line px-1.5 py-0.5 text-text hover:bg-raised"
                  onClick={() => {
                    onPoint({ from: 'lsn', at: each.lsn })
                  }}
                >
                  {each.name}
                </button>
              ))}
              {(history?.branch_points.length ?? 0) > points.length && (
                <span>and {(history?.branch_points.length ?? 0) - points.length} older</span>
              )}
            </p>
          )}
        </>
      )}
    </>
  )
}
