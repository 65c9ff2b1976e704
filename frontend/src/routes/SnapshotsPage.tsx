import { useSuspenseQuery } from '@tanstack/react-query'
import { Link, useParams } from '@tanstack/react-router'
import { useState } from 'react'

import { branchesQuery } from '~/features/branches/queries'
import { projectQuery } from '~/features/projects/queries'
import type { SnapshotAsk } from '~/features/snapshots/ask'
import { PendingRestores } from '~/features/snapshots/PendingRestores'
import { snapshotsQuery } from '~/features/snapshots/queries'
import { ScheduleCard } from '~/features/snapshots/ScheduleCard'
import { SnapshotTable } from '~/features/snapshots/SnapshotTable'
import { lazyDialog } from '~/shared/lazy-dialog'
import { PageHeader } from '~/shared/PageHeader'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'

const SnapshotDialogs = lazyDialog(() => import('~/features/snapshots/SnapshotDialogs'), 'SnapshotDialogs')

export function SnapshotsPage() {
  const { projectId } = useParams({ from: '/app/projects/$projectId/snapshots' })
  const { project } = useSuspenseQuery(projectQuery(projectId)).data
  const { branches } = useSuspenseQuery(branchesQuery(projectId)).data
  const { snapshots } = useSuspenseQuery(snapshotsQuery(projectId)).data
  const [ask, setAsk] = useState<SnapshotAsk | null>(null)
  return (
    <>
      <PageHeader
        above={
          <Link to="/projects/$projectId" params={{ projectId }} className="underline">
            {project.name}
          </Link>
        }
        title="Snapshots"
        note="A snapshot keeps one state of a branch for longer than the project keeps history."
        actions={
          <Button
            needs="works"
            variant="primary"
            onClick={() => {
              setAsk({ what: 'create' })
            }}
          >
            New snapshot
          </Button>
        }
      />
      <div className="grid gap-4">
        <Card title="Snapshots" note="A branch that has snapshots cannot be deleted without them.">
          <PendingRestores branches={branches} onAsk={setAsk} />
          <SnapshotTable snapshots={snapshots} branches={branches} onAsk={setAsk} />
        </Card>
        <ScheduleCard projectId={projectId} branches={branches} />
      </div>
      {ask && (
        <SnapshotDialogs
          projectId={projectId}
          since={project.created_at}
          ask={ask}
          branches={branches}
          onClose={() => {
            setAsk(null)
          }}
        />
      )}
    </>
  )
}
