import { Check, Minus, X } from 'lucide-react'

import type { BranchDurability, DurabilityLevel } from '~/api/types'
import { Badge } from '~/ui/Badge'
import { Table } from '~/ui/Table'

import { FACTS, forbidden, LEVELS, type Mishap, MISHAPS, type Survival } from './levels'

const SIGNS = {
  yes: { Icon: Check, color: 'text-good', text: 'kept' },
  mostly: { Icon: Minus, color: 'text-warn', text: 'kept while a machine that has it votes' },
  no: { Icon: X, color: 'text-bad', text: 'can be lost' },
} as const

function Sign({ survival }: { survival: Survival }) {
  const { Icon, color, text } = SIGNS[survival]
  return (
    <span className="inline-flex items-center gap-1.5 text-xs">
      <Icon aria-hidden size={14} className={`shrink-0 ${color}`} />
      {text}
    </span>
  )
}

/** What becomes of an acknowledged commit at each level, whatever happens to it. */
export function DurabilityTable({ durability }: { durability: BranchDurability }) {
  return (
    <Table
      caption="What each level survives"
      cards
      rows={[...LEVELS]}
      rowKey={(level) => level}
      empty=""
      columns={[
        { key: 'level', header: 'Level', cell: (level) => <Level level={level} durability={durability} /> },
        { key: 'returns', header: 'A commit returns once it is', cell: (level) => FACTS[level].returns },
        ...(Object.entries(MISHAPS) as [Mishap, string][]).map(([mishap, header]) => ({
          key: mishap,
          header,
          cell: (level: DurabilityLevel) => <Sign survival={FACTS[level].survives[mishap]} />,
        })),
        { key: 'waits', header: 'It waits while', cell: (level) => FACTS[level].waits },
      ]}
    />
  )
}

function Level({ level, durability }: { level: DurabilityLevel; durability: BranchDurability }) {
  const refused = forbidden(durability, level)
  return (
    <span className="inline-flex flex-wrap items-center gap-1.5 font-medium">
      {FACTS[level].name}
      {level === durability.effective && <Badge tone="accent">in effect</Badge>}
      {level === durability.level && level !== durability.effective && <Badge tone="warn">chosen</Badge>}
      {refused && <Badge title={refused}>forbidden</Badge>}
    </span>
  )
}
