import { clsx } from 'clsx'

import type { Rollout } from '~/api/types'
import { count } from '~/lib/format'
import { stateText } from '~/shared/states'
import { SelectField, TextField } from '~/ui/Field'

import type { GridData } from './grid-data'
import { MEMBER_STATES, memberLook } from './member-states'
import type { GridFilter } from './rollout-grid'

type Props = {
  rollout: Rollout
  grid: GridData
  filter: GridFilter
  list: boolean
  onFilter: (filter: GridFilter) => void
  onList: (list: boolean) => void
}

function StateChips({ rollout, filter, onFilter }: Pick<Props, 'rollout' | 'filter' | 'onFilter'>) {
  const counts = rollout.counts as Partial<Record<string, number>>
  const chosen = filter.states ?? []
  const present = MEMBER_STATES.filter((state) => (counts[state] ?? 0) > 0 || chosen.includes(state))
  return (
    <div role="group" aria-label="States" className="flex flex-wrap gap-1.5">
      {present.map((state) => {
        const on = chosen.includes(state)
        const look = memberLook(state)
        return (
          <button
            key={state}
            type="button"
            aria-pressed={on}
            title={look.means}
            className={clsx(
              'inline-flex min-h-7 items-center gap-1.5 rounded-full border px-2.5 text-xs',
              on ? 'border-accent bg-accent-soft' : 'border-line hover:bg-raised',
            )}
            onClick={() => {
              const states = on ? chosen.filter((other) => other !== state) : [...chosen, state]
              const rest = { ...filter }
              delete rest.states
              onFilter(states.length > 0 ? { ...rest, states } : rest)
            }}
          >
            <span
              aria-hidden
              className="inline-flex size-4 items-center justify-center rounded-sm text-[11px] font-bold text-panel"
              style={{ background: `var(${look.color})` }}
            >
              {look.glyph}
            </span>
            {stateText(state)} <strong className="tabular">{count(counts[state] ?? 0)}</strong>
          </button>
        )
      })}
    </div>
  )
}

/** Which computes are shown, and how; every choice is in the address. */
export function RolloutFilter({ rollout, grid, filter, list, onFilter, onList }: Props) {
  const set = <Key extends keyof GridFilter>(key: Key, value: GridFilter[Key] | undefined) => {
    const others = Object.entries(filter).filter(([name]) => name !== key)
    onFilter({ ...Object.fromEntries(others), ...(value === undefined || value === '' ? {} : { [key]: value }) })
  }
  return (
    <div className="mb-3 grid gap-3">
      <StateChips rollout={rollout} filter={filter} onFilter={onFilter} />
      <div className="grid items-end gap-3 sm:grid-cols-[1fr_1fr_2fr_auto] [&>div]:mb-0">
        <SelectField
          label="Wave"
          value={filter.wave ?? ''}
          onChange={(event) => {
            set('wave', event.target.value === '' ? undefined : Number(event.target.value))
          }}
        >
          <option value="">All waves</option>
          {rollout.waves.map((wave) => (
            <option key={wave.index} value={wave.index}>
              {wave.name}
            </option>
          ))}
        </SelectField>
        <SelectField
          label="Cell"
          value={filter.cell ?? ''}
          onChange={(event) => {
            set('cell', event.target.value)
          }}
        >
          <option value="">All cells</option>
          {grid.cells.map((cell) => (
            <option key={`${cell.region_id}/${cell.cell}`} value={cell.cell}>
              {cell.region_id} / {cell.cell}
            </option>
          ))}
        </SelectField>
        <TextField
          label="Project, compute or reason"
          type="search"
          value={filter.q ?? ''}
          onChange={(event) => {
            set('q', event.target.value)
          }}
        />
        <div role="group" aria-label="View" className="flex overflow-hidden rounded-md border border-line">
          {[false, true].map((asList) => (
            <button
              key={String(asList)}
              type="button"
              aria-pressed={list === asList}
              className={clsx(
                'min-h-8 px-3 text-sm',
                list === asList ? 'bg-accent-soft font-medium text-accent' : 'hover:bg-raised',
              )}
              onClick={() => {
                onList(asList)
              }}
            >
              {asList ? 'List' : 'Grid'}
            </button>
          ))}
        </div>
      </div>
    </div>
  )
}
