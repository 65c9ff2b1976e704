import { clsx } from 'clsx'
import { useMemo } from 'react'

import { whoColumns } from '~/features/computes/columns'
import { computes, count } from '~/lib/format'
import { squareSize } from '~/lib/grid-layout'
import { StateBadge } from '~/shared/StateBadge'
import { stateText } from '~/shared/states'
import { Button } from '~/ui/Button'
import { SquareGrid } from '~/ui/SquareGrid'
import { StateBar } from '~/ui/StateBar'
import { Table } from '~/ui/Table'

import type { GridMember } from './grid-data'
import { memberLook } from './member-states'
import { type GridGroup, groupByCell, type Held, whyHeld } from './rollout-grid'
import { stateShares } from './WaveStrip'

type Props = {
  /** Those that the filter leaves. */
  members: GridMember[]
  waves: { index: number; name: string }[]
  selected: string | null
  onSelect: (computeId: string) => void
}

function sentence(member: GridMember): string {
  return `${member.project}, ${member.id}: ${stateText(member.state)}${member.reason ? ` — ${member.reason}` : ''}`
}

function countStates(members: GridMember[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const member of members) counts[member.state] = (counts[member.state] ?? 0) + 1
  return counts
}

/** A few computes have room for their names. */
const TILES_UP_TO = 48

function Tiles({ members, selected, onSelect }: Pick<Props, 'members' | 'selected' | 'onSelect'>) {
  return (
    <div className="grid grid-cols-[repeat(auto-fill,minmax(13rem,1fr))] gap-1.5">
      {members.map((member) => {
        const look = memberLook(member.state)
        return (
          <button
            key={member.id}
            type="button"
            title={sentence(member)}
            className={clsx(
              'flex items-center gap-2 rounded-md border bg-panel px-2 py-1.5 text-left hover:bg-raised',
              selected === member.id ? 'border-accent' : 'border-line',
            )}
            onClick={() => {
              onSelect(member.id)
            }}
          >
            <span
              aria-hidden
              className="inline-flex size-5 flex-none items-center justify-center rounded-sm text-xs font-bold text-panel"
              style={{ background: `var(${look.color})` }}
            >
              {look.glyph}
            </span>
            <span className="min-w-0">
              <span className="block truncate text-sm">{member.project}</span>
              <span className="block truncate font-mono text-[11px] text-muted">{member.id}</span>
            </span>
            <span className="ml-auto text-xs text-muted">{stateText(member.state)}</span>
          </button>
        )
      })}
    </div>
  )
}

function Cell({
  group,
  size,
  selected,
  onSelect,
}: { group: GridGroup; size: number | null } & Pick<Props, 'selected' | 'onSelect'>) {
  const squares = useMemo(
    () => group.members.map((member) => ({ id: member.id, text: sentence(member), ...memberLook(member.state) })),
    [group],
  )
  return (
    // Narrower than what is drawn in it, or squares would never hear that the page has become narrow.
    <div className="min-w-0">
      <div className="mb-1 flex flex-wrap items-center gap-x-3 gap-y-1">
        <h3 className="text-sm font-medium">
          {group.region} / {group.cell}
        </h3>
        <span className="tabular text-xs text-muted">{computes(group.members.length)}</span>
        <span className="w-40">
          <StateBar label={`Cell ${group.cell}`} shares={stateShares(countStates(group.members))} />
        </span>
      </div>
      {size === null ? (
        <Tiles members={group.members} selected={selected} onSelect={onSelect} />
      ) : (
        <SquareGrid
          label={`Computes of cell ${group.cell}`}
          squares={squares}
          size={size}
          selected={selected}
          onSelect={onSelect}
        />
      )}
    </div>
  )
}

/** One square a compute, by region and cell, in the order of waves. */
export function RolloutMap({ members, selected, onSelect }: Omit<Props, 'waves'>) {
  const groups = useMemo(() => groupByCell(members), [members])
  if (members.length === 0) return <p className="py-6 text-center text-muted">No compute matches.</p>
  const size = members.length <= TILES_UP_TO ? null : squareSize(members.length)
  return (
    <div className="grid gap-4">
      {groups.map((group) => (
        <Cell key={group.key} group={group} size={size} selected={selected} onSelect={onSelect} />
      ))}
    </div>
  )
}

/** The same as a list, for reading reasons. */
export function RolloutList({ members, waves, onSelect }: Omit<Props, 'selected'>) {
  const names = new Map(waves.map((wave) => [wave.index, wave.name]))
  return (
    <Table
      caption="Computes of the rollout"
      rows={members}
      rowKey={(row) => row.id}
      empty="No compute matches."
      cards
      columns={[
        ...whoColumns<GridMember>(
          (row) => row.id,
          (row) => row.project,
          (row) => [row.region, row.cell],
          onSelect,
        ),
        { key: 'wave', header: 'Wave', sort: (row) => row.wave, cell: (row) => names.get(row.wave) ?? row.wave },
        { key: 'state', header: 'State', sort: (row) => row.state, cell: (row) => <StateBadge state={row.state} /> },
        {
          key: 'reason',
          header: 'Why',
          sort: (row) => row.reason,
          cell: (row) => (
            <span className="line-clamp-2 text-xs" title={row.reason ?? undefined}>
              {row.reason ?? '—'}
            </span>
          ),
        },
      ]}
    />
  )
}

const SHOWN = 6

/** Why computes stand still, in words, most common first. */
export function WhyHeld({ members, onShow }: { members: GridMember[]; onShow: (held: Held) => void }) {
  const reasons = useMemo(() => whyHeld(members), [members])
  if (reasons.length === 0) return null
  return (
    <ul aria-label="Why computes wait" className="mb-4 divide-y divide-line rounded-md border border-line text-sm">
      {reasons.slice(0, SHOWN).map((held) => {
        const state = held.members[0]?.state ?? ''
        return (
          <li key={`${state}${held.reason}`} className="flex flex-wrap items-center gap-2 px-3 py-1.5">
            <StateBadge state={state} />
            <strong className="tabular">{count(held.members.length)}</strong>
            <span className="line-clamp-2 min-w-0 flex-1 basis-56" title={held.reason}>
              {held.members.length > 1 && <span className="text-muted">for example: </span>}
              {held.reason}
            </span>
            <Button
              variant="quiet"
              aria-label={`Show computes that are ${stateText(state)}: ${held.reason}`}
              onClick={() => {
                onShow(held)
              }}
            >
              Show
            </Button>
          </li>
        )
      })}
      {reasons.length > SHOWN && (
        <li className="px-3 py-1.5 text-xs text-muted">
          and {reasons.length - SHOWN} more reasons: the list shows each
        </li>
      )}
    </ul>
  )
}
