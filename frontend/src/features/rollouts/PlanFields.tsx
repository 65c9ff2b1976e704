import { useStore } from '@tanstack/react-form'
import { useQuery } from '@tanstack/react-query'
import { Plus, X } from 'lucide-react'
import { type ReactNode, useDeferredValue, useState } from 'react'

import type { FleetCell } from '~/api/types'
import { cellsQuery, organizationsQuery } from '~/features/fleet/queries'
import { projectSearchQuery } from '~/features/projects/queries'
import { errorOf, withForm } from '~/shared/form'
import { Button } from '~/ui/Button'
import { Checkbox, TextField } from '~/ui/Field'

import { DEFAULT_FORM, LONGEST, type Named } from './plan-form'

/** A part of the editor that is closed until somebody wants other than the default; its summary says what holds. */
export function Section({
  title,
  says,
  bad,
  open,
  children,
}: {
  title: string
  says: ReactNode
  bad?: boolean
  open?: boolean
  children: ReactNode
}) {
  return (
    <details open={open} className="group border-t border-line py-2">
      <summary className="cursor-pointer text-sm">
        <span className="font-medium">{title}</span>{' '}
        <span className={bad ? 'text-bad' : 'text-muted'}>{bad ? 'something is wrong here' : says}</span>
      </summary>
      <div className="pt-3">{children}</div>
    </details>
  )
}

export const toggled = <Item,>(items: Item[], item: Item, on: boolean): Item[] =>
  on ? [...items, item] : items.filter((other) => other !== item)

type ChoiceProps = {
  title: string
  label: string
  none: string
  /** Those that the search found; the ones that are chosen stay in sight whatever is searched for. */
  found: Named[]
  chosen: Named[]
  search: string
  onSearch: (search: string) => void
  onChoose: (chosen: Named[]) => void
}

/** Some of many: a search, and a box to check for each that it found. */
function Choice({ title, label, none, found, chosen, search, onSearch, onChoose }: ChoiceProps) {
  const ids = new Set(chosen.map((item) => item.id))
  const shown = [...chosen, ...found.filter((item) => !ids.has(item.id))]
  return (
    <fieldset className="mb-3">
      <legend className="mb-1 text-sm font-medium">
        {title} <span className="font-normal text-muted">(none chosen means all)</span>
      </legend>
      <TextField
        label={label}
        type="search"
        value={search}
        onChange={(event) => {
          onSearch(event.target.value)
        }}
      />
      <div className="max-h-40 overflow-y-auto rounded-md border border-line px-2 py-1">
        {shown.map(({ id, name }) => (
          <Checkbox
            key={id}
            label={name}
            checked={ids.has(id)}
            onChange={(on) => {
              onChoose(on ? [...chosen, { id, name }] : chosen.filter((other) => other.id !== id))
            }}
          />
        ))}
        {shown.length === 0 && <p className="py-1 text-sm text-muted">{none}</p>}
      </div>
    </fieldset>
  )
}

type NamedProps = { chosen: Named[]; onChoose: (chosen: Named[]) => void }

function ProjectsField({ chosen, onChoose }: NamedProps) {
  const [search, onSearch] = useState('')
  const { data } = useQuery(projectSearchQuery(useDeferredValue(search.trim())))
  return (
    <Choice
      title="Projects"
      label="Find a project"
      none="No project has that name."
      found={data?.projects ?? []}
      {...{ chosen, onChoose, search, onSearch }}
    />
  )
}

function OrganizationsField({ chosen, onChoose }: NamedProps) {
  const [search, onSearch] = useState('')
  const { data } = useQuery(organizationsQuery(useDeferredValue(search.trim())))
  const found = (data?.organizations ?? []).map((org) => ({ id: org.org_id, name: org.name }))
  // Who sees one organisation's computes alone has nothing to choose.
  if (chosen.length === 0 && search === '' && found.length < 2) return null
  return (
    <Choice
      title="Organisations"
      label="Find an organisation"
      none="No organisation with computes has that name."
      {...{ found, chosen, onChoose, search, onSearch }}
    />
  )
}

type CheckedProps = { cells: FleetCell[]; chosen: string[]; onChoose: (chosen: string[]) => void }

/** A box for each cell of a region. */
function CellsField({ cells, chosen, onChoose }: CheckedProps) {
  return (
    <div className="pl-5">
      {cells.map((cell) => (
        <Checkbox
          key={cell.cell}
          label={
            <>
              {cell.cell}{' '}
              <span className="text-xs text-muted">
                {cell.computes} computes, {cell.pushdown_on} have it
              </span>
            </>
          }
          checked={chosen.includes(cell.cell)}
          onChange={(on) => {
            onChoose(toggled(chosen, cell.cell, on))
          }}
        />
      ))}
    </div>
  )
}

export const SelectorFields = withForm({
  defaultValues: DEFAULT_FORM,
  render: function SelectorFields({ form }) {
    const { data } = useQuery(cellsQuery)
    const regions = [...new Set((data?.cells ?? []).map((cell) => cell.region_id))]
    const tags = Object.entries(data?.tags ?? {}).map(([tag, values]) => `${tag}=${values.slice(0, 3).join('|')}`)
    return (
      <>
        <fieldset className="mb-3">
          <legend className="mb-1 text-sm font-medium">
            Regions and cells <span className="font-normal text-muted">(none chosen means all)</span>
          </legend>
          <div className="max-h-40 overflow-y-auto rounded-md border border-line px-2 py-1">
            {regions.map((region) => (
              <div key={region}>
                <form.Field name="regions">
                  {(field) => (
                    <Checkbox
                      label={<>Region {region}</>}
                      checked={field.state.value.includes(region)}
                      onChange={(on) => {
                        field.handleChange(toggled(field.state.value, region, on))
                      }}
                    />
                  )}
                </form.Field>
                <form.Field name="cells">
                  {(field) => (
                    <CellsField
                      cells={data?.cells.filter((cell) => cell.region_id === region) ?? []}
                      chosen={field.state.value}
                      onChoose={field.handleChange}
                    />
                  )}
                </form.Field>
              </div>
            ))}
          </div>
        </fieldset>
        <form.Field name="orgs">
          {(field) => <OrganizationsField chosen={field.state.value} onChoose={field.handleChange} />}
        </form.Field>
        <form.Field name="projects">
          {(field) => <ProjectsField chosen={field.state.value} onChoose={field.handleChange} />}
        </form.Field>
        <div className="grid grid-cols-2 gap-x-3">
          <form.AppField name="sizeMin">
            {(field) => <field.Text label="Size from, GiB" inputMode="decimal" />}
          </form.AppField>
          <form.AppField name="sizeMax">
            {(field) => <field.Text label="Size to, GiB" inputMode="decimal" />}
          </form.AppField>
          <form.AppField name="walMin">
            {(field) => <field.Text label="WAL now from, KiB/s" inputMode="decimal" />}
          </form.AppField>
          <form.AppField name="walMax">
            {(field) => <field.Text label="WAL now to, KiB/s" inputMode="decimal" />}
          </form.AppField>
          <form.AppField name="pgVersions">
            {(field) => <field.Text label="Postgres versions" placeholder="any" />}
          </form.AppField>
          <form.AppField name="tags">
            {(field) => (
              <field.Text
                label="Tags, all of them"
                placeholder="name=value, …"
                hint={tags.length > 0 ? `In use: ${tags.slice(0, 4).join(', ')}` : undefined}
              />
            )}
          </form.AppField>
        </div>
      </>
    )
  },
})

/** A key for a row that is added: rows keep theirs while others come and go. */
export const nextKey = (rows: { key: number }[]) => Math.max(0, ...rows.map((row) => row.key)) + 1

export const WavesFields = withForm({
  defaultValues: DEFAULT_FORM,
  render: function WavesFields({ form }) {
    const soak = useStore(form.store, (state) => state.values.soak)
    return (
      <form.Field name="waves" mode="array">
        {(waves) => (
          <div>
            <p className="mb-2 text-xs text-muted">
              Per cent counts everyone up to and with the wave. Waves that come out empty fall away. Each is spread
              over cells, sizes and write rates.
            </p>
            {waves.state.value.map((row, index) => (
              <fieldset
                key={row.key}
                className="mb-1 grid grid-cols-[minmax(0,1fr)_4.5rem_6.5rem_5rem_2rem] items-start gap-1.5 [&>div]:mb-0"
              >
                <legend className="sr-only">Wave {index + 1}</legend>
                <form.AppField name={`waves[${index}].name`}>
                  {(field) => (
                    <field.Text
                      label={index === 0 ? 'Wave' : `Wave ${String(index + 1)}`}
                      compact={index > 0}
                      maxLength={LONGEST.wave}
                    />
                  )}
                </form.AppField>
                <form.AppField name={`waves[${index}].amount`}>
                  {(field) => <field.Text label="Amount" compact={index > 0} inputMode="decimal" />}
                </form.AppField>
                <form.AppField name={`waves[${index}].by`}>
                  {(field) => (
                    <field.Select label="Of" compact={index > 0}>
                      <option value="count">computes</option>
                      <option value="percent">per cent</option>
                    </field.Select>
                  )}
                </form.AppField>
                <form.AppField name={`waves[${index}].soak`}>
                  {(field) => (
                    <field.Text label="Soak, s" compact={index > 0} inputMode="numeric" placeholder={soak} />
                  )}
                </form.AppField>
                <Button
                  variant="quiet"
                  className={index === 0 ? 'mt-6 px-1' : 'px-1'}
                  aria-label={`Remove wave ${row.name || String(index + 1)}`}
                  disabledReason={waves.state.value.length === 1 ? 'A rollout has at least one wave.' : null}
                  onClick={() => {
                    waves.removeValue(index)
                  }}
                >
                  <X aria-hidden size={15} />
                </Button>
              </fieldset>
            ))}
            {errorOf(waves) && (
              <p role="alert" className="mt-1 text-xs text-bad">
                {errorOf(waves)}
              </p>
            )}
            <Button
              className="mt-2"
              onClick={() => {
                waves.pushValue({ key: nextKey(waves.state.value), name: '', by: 'percent', amount: '100', soak: '' })
              }}
            >
              <Plus aria-hidden size={14} /> Add wave
            </Button>
          </div>
        )}
      </form.Field>
    )
  },
})
