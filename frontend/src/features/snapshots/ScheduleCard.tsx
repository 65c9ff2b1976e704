import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'

import { errorText } from '~/api/errors'
import type { BackupScheduleEntry, BackupScheduleItem, Branch } from '~/api/types'
import { time } from '~/lib/format'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { SelectField } from '~/ui/Field'
import { Loading, Notice } from '~/ui/Notice'
import { Table } from '~/ui/Table'

import { scheduleQuery, setSchedule } from './queries'
import { asItem, keptText, whenText } from './schedule-text'
import { ScheduleForm } from './ScheduleForm'

type Props = { projectId: string; branches: Branch[] }

/** When snapshots of a branch are taken by themselves, branch by branch. */
export function ScheduleCard({ projectId, branches }: Props) {
  const [chosen, setChosen] = useState<string | null>(null)
  const branch = branches.find((each) => each.id === chosen) ?? branches.find((each) => each.default) ?? branches[0]
  return (
    <Card title="Schedule" note="Times that were missed while Weir was down give one snapshot.">
      <div className="max-w-xs">
        <SelectField
          label="Of branch"
          value={branch?.id ?? ''}
          onChange={(event) => {
            setChosen(event.target.value)
          }}
        >
          {branches.map((each) => (
            <option key={each.id} value={each.id}>
              {each.name}
            </option>
          ))}
        </SelectField>
      </div>
      {branch && <Entries key={branch.id} projectId={projectId} branch={branch} />}
    </Card>
  )
}

function Entries({ projectId, branch }: { projectId: string; branch: Branch }) {
  const { data, error } = useQuery(scheduleQuery(projectId, branch.id))
  const change = useAction((schedule: BackupScheduleItem[]) => setSchedule(projectId, branch.id, schedule), {
    done: `The schedule of ${branch.name} is changed`,
    invalidate: [projectKeys.one(projectId)],
  })
  if (error) return <Notice tone="bad">{errorText(error)}</Notice>
  if (!data) return <Loading what="schedule" />
  const entries = data.schedule
  const without = (gone: BackupScheduleEntry) => entries.filter((entry) => entry !== gone).map(asItem)
  return (
    <>
      <Table
        caption={`Schedule of ${branch.name}`}
        cards
        rows={entries}
        rowKey={(entry) => `${whenText(asItem(entry))} ${keptText(entry)}`}
        empty="No snapshots of it are taken by themselves."
        columns={[
          { key: 'when', header: 'Taken', cell: (entry) => whenText(asItem(entry)) },
          { key: 'kept', header: 'Kept for', cell: (entry) => keptText(entry) },
          { key: 'next', header: 'Next', cell: (entry) => time(entry.next_at) },
          {
            key: 'actions',
            header: <span className="sr-only">Actions</span>,
            cell: (entry) => (
              <span className="flex justify-end">
                <Button
                  needs="works"
                  variant="danger"
                  aria-label={`Remove: ${whenText(asItem(entry))}`}
                  busy={change.isPending}
                  onClick={() => {
                    change.mutate(without(entry))
                  }}
                >
                  Remove
                </Button>
              </span>
            ),
          },
        ]}
      />
      <ScheduleForm
        busy={change.isPending}
        onAdd={(entry) => {
          change.mutate([...entries.map(asItem), entry])
        }}
      />
    </>
  )
}
