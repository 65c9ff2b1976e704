import { useSuspenseQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams } from '@tanstack/react-router'
import { useState } from 'react'

import { type BranchAsk, BranchTree } from '~/features/branches/BranchTree'
import { quotaOf } from '~/features/branches/can'
import { ConnectionString } from '~/features/branches/ConnectionString'
import { branchesQuery } from '~/features/branches/queries'
import { endpointsQuery } from '~/features/computes/endpoint-queries'
import { Operations } from '~/features/operations/Operations'
import { ProjectStorage } from '~/features/projects/ProjectStorage'
import { deleteProject, projectQuery } from '~/features/projects/queries'
import { Quotas } from '~/features/quotas/Quotas'
import { lazyDialog } from '~/shared/lazy-dialog'
import { PageHeader } from '~/shared/PageHeader'
import { projectKeys } from '~/shared/project-keys'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { BUTTON_LINK } from '~/ui/button-link'
import { Card } from '~/ui/Card'
import { DeleteDialog } from '~/ui/DeleteDialog'

const ProjectOfferForm = lazyDialog(() => import('~/features/projects/ProjectOfferForm'), 'ProjectOfferForm')
const BranchDialogs = lazyDialog(() => import('~/features/branches/BranchDialogs'), 'BranchDialogs')

function DeleteProject({ id, name }: { id: string; name: string }) {
  const [open, setOpen] = useState(false)
  const navigate = useNavigate()
  const remove = useAction(() => deleteProject(id), {
    done: `Project ${name} is being deleted`,
    invalidate: [projectKeys.all],
    onDone: () => void navigate({ to: '/projects' }),
  })
  return (
    <>
      <Button
        needs="decides"
        variant="danger"
        onClick={() => {
          setOpen(true)
        }}
      >
        Delete project
      </Button>
      {open && (
        <DeleteDialog
          name={name}
          title={`Delete ${name}?`}
          description="Every branch, compute and byte of it goes. This cannot be undone."
          busy={remove.isPending}
          onDelete={() => {
            remove.mutate(undefined)
          }}
          onClose={() => {
            setOpen(false)
          }}
        />
      )}
    </>
  )
}

export function ProjectPage() {
  const { projectId } = useParams({ from: '/app/projects/$projectId' })
  const { project } = useSuspenseQuery(projectQuery(projectId)).data
  const { branches } = useSuspenseQuery(branchesQuery(projectId)).data
  const { endpoints } = useSuspenseQuery(endpointsQuery(projectId)).data
  const [ask, setAsk] = useState<BranchAsk | null>(null)
  const [offering, setOffering] = useState(false)
  const main = branches.find((branch) => branch.default) ?? branches[0]
  return (
    <>
      <PageHeader
        above={
          <Link to="/projects" className="underline">
            Projects
          </Link>
        }
        title={project.name}
        note={
          <>
            Postgres {project.pg_version} · <code>{project.id}</code>
          </>
        }
        actions={
          <>
            <Link to="/projects/$projectId/snapshots" params={{ projectId }} className={BUTTON_LINK}>
              Snapshots
            </Link>
            <Link to="/projects/$projectId/schemas" params={{ projectId }} className={BUTTON_LINK}>
              Compare schemas
            </Link>
            <Link to="/projects/$projectId/usage" params={{ projectId }} className={BUTTON_LINK}>
              Usage
            </Link>
            <Button
              onClick={() => {
                setOffering(true)
              }}
            >
              Transfer
            </Button>
            <DeleteProject id={project.id} name={project.name} />
          </>
        }
      />
      <div className="grid gap-4">
        {main && <ConnectionString projectId={projectId} branch={main} />}
        <Card title="Branches" note="A branch shares its past with its parent; writes on either side stay there.">
          <BranchTree
            projectId={projectId}
            branches={branches}
            endpoints={endpoints}
            quota={quotaOf(project)}
            onAsk={setAsk}
          />
        </Card>
        <ProjectStorage project={project} branches={branches} />
        <Quotas projectId={projectId} />
        <Operations projectId={projectId} branches={branches} />
      </div>
      {offering && (
        <ProjectOfferForm
          project={project}
          onClose={() => {
            setOffering(false)
          }}
        />
      )}
      {ask && (
        <BranchDialogs
          projectId={projectId}
          since={project.created_at}
          ask={ask}
          branches={branches}
          endpoints={endpoints}
          onClose={() => {
            setAsk(null)
          }}
        />
      )}
    </>
  )
}
