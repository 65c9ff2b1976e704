import { Link } from '@tanstack/react-router'

import type { Column } from '~/ui/Table'

const COMPUTE_LOOK = 'font-mono text-xs whitespace-nowrap text-accent underline'

/** Columns that lists of computes share, so that they read alike. */
export function computeColumn<Row>(id: (row: Row) => string, onSelect?: (computeId: string) => void): Column<Row> {
  return {
    key: 'compute',
    header: 'Compute',
    sort: id,
    cell: (row) =>
      onSelect ? (
        <button
          type="button"
          className={COMPUTE_LOOK}
          onClick={() => {
            onSelect(id(row))
          }}
        >
          {id(row)}
        </button>
      ) : (
        <Link to="/computes/$computeId" params={{ computeId: id(row) }} className={COMPUTE_LOOK}>
          {id(row)}
        </Link>
      ),
  }
}

export function cellColumn<Row>(place: (row: Row) => [region: string, cell: string]): Column<Row> {
  return {
    key: 'cell',
    header: 'Region / cell',
    sort: (row) => place(row).join(' / '),
    cell: (row) => place(row).join(' / '),
  }
}

/** Who a compute is and where: the first columns of every list of computes of a fleet. */
export function whoColumns<Row>(
  id: (row: Row) => string,
  project: (row: Row) => string,
  place: (row: Row) => [region: string, cell: string],
  onSelect?: (computeId: string) => void,
): Column<Row>[] {
  return [
    computeColumn(id, onSelect),
    { key: 'project', header: 'Project', sort: project, cell: project },
    cellColumn(place),
  ]
}

/** For tables that say of a compute only who it is. */
export function namedColumn<Row extends { project_name: string; compute_id: string }>(): Column<Row> {
  return {
    key: 'compute',
    header: 'Project, compute',
    cell: (row) => (
      <span>
        {row.project_name}
        <code className="block text-xs whitespace-nowrap text-muted">{row.compute_id}</code>
      </span>
    ),
  }
}
