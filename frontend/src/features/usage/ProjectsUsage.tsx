import { Link } from '@tanstack/react-router'

import type { ProjectConsumption } from '~/api/types'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { Table } from '~/ui/Table'

import { csv, FIGURES, totalOf } from './figures'
import { saveText } from './save'

const framesOf = (project: ProjectConsumption) =>
  project.periods.flatMap((period) => period.consumption.map((frame) => ({ frame })))

type Props = { projects: ProjectConsumption[]; more: boolean; file: string }

/** What each project used over the range. */
export function ProjectsUsage({ projects, more, file }: Props) {
  const rows = projects.map((project) => {
    const frames = framesOf(project)
    return { project, totals: new Map(FIGURES.map(({ name }) => [name, totalOf(frames, name)])) }
  })
  type Row = (typeof rows)[number]
  const save = () => {
    saveText(
      `${file}.csv`,
      csv(
        ['project_id', 'project_name', ...FIGURES.map(({ name }) => name)],
        rows.map(({ project, totals }) => [
          project.project_id,
          project.project_name,
          ...FIGURES.map(({ name }) => totals.get(name) ?? 0),
        ]),
      ),
    )
  }
  return (
    <Card
      title="By project"
      note="Over the whole range, with projects that were deleted or transferred since."
      actions={<Button onClick={save}>Export CSV</Button>}
    >
      <Table
        caption="Usage by project"
        cards
        partial={more}
        rows={rows}
        rowKey={(row) => row.project.project_id}
        empty="There is no project, and none used anything."
        columns={[
          {
            key: 'project',
            header: 'Project',
            sort: (row) => row.project.project_name,
            cell: ({ project }) =>
              project.deleted ? (
                <span className="text-muted">{project.project_name} (gone)</span>
              ) : (
                <Link
                  to="/projects/$projectId/usage"
                  params={{ projectId: project.project_id }}
                  className="text-accent underline"
                >
                  {project.project_name}
                </Link>
              ),
          },
          ...FIGURES.map(({ name, label, format }) => ({
            key: name,
            header: label,
            numeric: true,
            sort: (row: Row) => row.totals.get(name) ?? 0,
            cell: (row: Row) => format(row.totals.get(name) ?? 0),
          })),
        ]}
      />
    </Card>
  )
}
