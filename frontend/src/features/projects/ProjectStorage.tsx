import { useState } from 'react'

import type { Branch, Project } from '~/api/types'
import { quotaOf } from '~/features/branches/can'
import { FACTS, forbiddenBy } from '~/features/durability/levels'
import { bytes, bytesPerSecond, span } from '~/lib/format'
import { lazyDialog } from '~/shared/lazy-dialog'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { Stat, Stats } from '~/ui/Stat'

import { walRateOf } from './amounts'
import { CommitPolicyForm } from './CommitPolicyForm'

const HistoryWindowForm = lazyDialog(() => import('./StorageForms'), 'HistoryWindowForm')
const QuotaForm = lazyDialog(() => import('./StorageForms'), 'QuotaForm')
const WalRateForm = lazyDialog(() => import('./WalRateForm'), 'WalRateForm')

type Known = 'logical_size' | 'history_size'

/** A sum over branches; null while storage tells none of them. */
function total(branches: Branch[], what: Known): number | null {
  const known = branches.flatMap((branch) => branch[what] ?? [])
  return known.length === 0 ? null : known.reduce((sum, size) => sum + size, 0)
}

/** What a project keeps, and how much it may: its history window and its quota. */
export function ProjectStorage({ project, branches }: { project: Project; branches: Branch[] }) {
  const [asked, setAsked] = useState<'window' | 'quota' | 'wal' | 'commits' | null>(null)
  const limit = quotaOf(project)
  const walRate = walRateOf(project)
  const forbidden = forbiddenBy(project)
  const close = () => {
    setAsked(null)
  }
  return (
    <Card
      title="Storage"
      note="Sizes as storage counts them."
      actions={
        <>
          <Button
            needs="decides"
            onClick={() => {
              setAsked('window')
            }}
          >
            History window
          </Button>
          <Button
            needs="decides"
            onClick={() => {
              setAsked('quota')
            }}
          >
            Quota
          </Button>
          <Button
            needs="decides"
            onClick={() => {
              setAsked('wal')
            }}
          >
            Limit of WAL
          </Button>
          <Button
            needs="decides"
            onClick={() => {
              setAsked('commits')
            }}
          >
            Commit policy
          </Button>
        </>
      }
    >
      <Stats>
        <Stat
          label="History window"
          value={span(project.history_retention_seconds)}
          note="how far back branches can be restored"
        />
        <Stat
          label="History kept"
          value={bytes(total(branches, 'history_size'))}
          note="WAL of the branches’ changes, of all together"
        />
        <Stat
          label="Quota of each branch"
          value={limit > 0 ? bytes(limit) : 'none'}
          note={limit > 0 ? 'beyond it a branch takes no more data' : 'branches grow as they like'}
        />
        <Stat
          label="WAL of each compute"
          value={walRate > 0 ? `at most ${bytesPerSecond(walRate)}` : 'no limit'}
          note={walRate > 0 ? 'commits beyond it wait for their turn' : 'computes write as fast as they can'}
        />
        <Stat
          label="Forbidden for commits"
          value={forbidden.length === 0 ? 'nothing' : forbidden.map((level) => FACTS[level].name).join(', ')}
          note="levels that no branch may have, beside the installation’s"
        />
        <Stat
          label="Data"
          value={bytes(total(branches, 'logical_size'))}
          note="of all branches; what they share counts for each"
        />
      </Stats>
      {asked === 'window' && <HistoryWindowForm project={project} branches={branches} onClose={close} />}
      {asked === 'commits' && <CommitPolicyForm project={project} branches={branches} onClose={close} />}
      {asked === 'wal' && <WalRateForm project={project} onClose={close} />}
      {asked === 'quota' && <QuotaForm project={project} branches={branches} onClose={close} />}
    </Card>
  )
}
