import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'

import { errorText } from '~/api/errors'
import type { Branch, BranchDurability, Endpoint } from '~/api/types'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { Loading, Notice } from '~/ui/Notice'

import { BranchDurabilityForm } from './BranchDurabilityForm'
import { ChosenLevels } from './ChosenLevels'
import { DurabilityTable } from './DurabilityTable'
import { FACTS } from './levels'
import { branchDurabilityQuery } from './queries'

type Props = { projectId: string; branch: Branch; endpoints: Endpoint[] }

/** What an acknowledged commit of a branch survives, and who has chosen less. */
export function BranchCommits({ projectId, branch, endpoints }: Props) {
  const { data, error } = useQuery(branchDurabilityQuery(projectId, branch.id))
  const [asked, setAsked] = useState(false)
  const running = endpoints.find(
    (endpoint) => endpoint.branch_id === branch.id && endpoint.current_state === 'active',
  )
  return (
    <Card
      title="Commits"
      note="What a client that was told COMMIT may rely on."
      actions={
        <Button
          needs="works"
          disabledReason={data ? null : 'The levels are being read.'}
          onClick={() => {
            setAsked(true)
          }}
        >
          Change level
        </Button>
      }
    >
      {error ? (
        <Notice tone="bad">{errorText(error)}</Notice>
      ) : data ? (
        <Levels durability={data} />
      ) : (
        <Loading what="levels" />
      )}
      {running && (
        <section aria-label="Chosen by roles and databases" className="mt-4">
          <ChosenLevels computeId={running.id} />
        </section>
      )}
      {asked && data && (
        <BranchDurabilityForm
          projectId={projectId}
          branch={branch}
          durability={data}
          onClose={() => {
            setAsked(false)
          }}
        />
      )}
    </Card>
  )
}

function Levels({ durability }: { durability: BranchDurability }) {
  const by = durability.levels.find((each) => each.level === durability.level)?.forbidden_by
  return (
    <>
      <p className="mb-3 text-sm">
        A commit returns once it is <strong className="font-semibold">{FACTS[durability.effective].returns}</strong>,
        unless its role or session says otherwise.
      </p>
      {by && (
        <div className="mb-3">
          <Notice tone="warn">
            {FACTS[durability.level].name} was chosen, which the policy of the {by} forbids: computes are given{' '}
            {FACTS[durability.effective].name}.
          </Notice>
        </div>
      )}
      <DurabilityTable durability={durability} />
    </>
  )
}
