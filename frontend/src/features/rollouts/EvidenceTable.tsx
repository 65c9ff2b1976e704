import type { Evidence } from '~/api/types'
import { Table } from '~/ui/Table'

import { changeTable, EVIDENCE } from './evidence'

/** What was measured in both windows, figure by figure. */
export function EvidenceTable({ evidence }: { evidence: Evidence }) {
  const rows = EVIDENCE.flatMap((row) => {
    const measured = evidence.metrics[row.name]
    return measured ? [{ ...row, ...measured }] : []
  })
  return <Table {...changeTable('Before and after the switch', rows)} />
}
