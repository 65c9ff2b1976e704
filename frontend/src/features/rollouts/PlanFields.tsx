import { useQuery } from '@tanstack/react-query'
import { Plus, X } from 'lucide-react'
import { type ReactNode, useDeferredValue, useState } from 'react'

import { cellsQuery, organizationsQuery } from '~/features/fleet/queries'
import { projectSearchQuery } from '~/features/projects/queries'
import { Button } from '~/ui/Button'
import { Checkbox, SelectField, TextField } from '~/ui/Field'

import { type FieldErrors, LONGEST, type Named, type PlanForm, type WaveRow } from './plan-form'

export type FieldsProps = { form: PlanForm; errors: FieldErrors; set: (change: Partial<PlanForm>) => void }

/** A part of the editor that is closed until somebody wants other than the default; its summary says what holds. */
export function Section({ title, says, bad, open, children }: { title: string; says: ReactNode; bad?: boolean; open?: boolean; children: ReactNode }) {
  return (
    <details open={open} className="group border-t border-line py-2">
      <summary className="cursor-pointer text-sm">
        <span className="font-medium">{title}</span> <span className={bad ? 'text-bad' : 'text-muted'}>{bad ? 'something is wrong here' : says}</span>
      </summary>
      <div className="pt-3">{children}</div>
    </details>
  )
}

export const toggled = <Item,>(items: Item[], item: Item, on: boolean): Item[] => (on ? [...items, item] : items.filter((other) => other !== item))

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
      <legend className="mb-1 text-sm font-medium">{title} <span className="font-normal text-muted">(none chosen means all)</span></legend>
      <TextField label={label} type="search" value={search} onChange={(event) => { onSearch(event.target.value) }} />
      <div className="max-h-40 overflow-y-auto rounded-md border border-line px-2 py-1">
        {shown.map(({ id, name }) => (
          <Checkbox key={id} label={name} checked={ids.has(id)} onChange={(on) => { onChoose(on ? [...chosen, { id, name }] : chosen.filter((other) => other.id !== id)) }} />
        ))}
        {shown.length === 0 && <p className="py-1 text-sm text-muted">{none}</p>}
      </div>
    </fieldset>
  )
}

function ProjectsField({ form, set }: FieldsProps) {
  const [search, onSearch] = useState('')
  const { data } = useQuery(projectSearchQuery(useDeferredValue(search.trim())))
  return <Choice title="Projects" label="Find a project" none="No project has that name." found={data?.projects ?? []} chosen={form.projects} onChoose={(projects) => { set({ projects }) }} {...{ search, onSearch }} />
}

function OrganizationsField({ form, set }: FieldsProps) {
  const [search, onSearch] = useState('')
  const { data } = useQuery(organizationsQuery(useDeferredValue(search.trim())))
  const found = (data?.organizations ?? []).map((org) => ({ id: org.org_id, name: org.name }))
  // Who sees one organisation's computes alone has nothing to choose.
  if (form.orgs.length === 0 && search === '' && found.length < 2) return null
  return <Choice title="Organisations" label="Find an organisation" none="No organisation with computes has that name." found={found} chosen={form.orgs} onChoose={(orgs) => { set({ orgs }) }} {...{ search, onSearch }} />
}

export function SelectorFields(props: FieldsProps) {
  const { form, errors, set } = props
  const { data } = useQuery(cellsQuery)
  const regions = [...new Set((data?.cells ?? []).map((cell) => cell.region_id))]
  const text = (field: 'tags' | 'pgVersions' | 'sizeMin' | 'sizeMax' | 'walMin' | 'walMax') => ({
    value: form[field],
    error: errors[field],
    onChange: (event: { target: { value: string } }) => { set({ [field]: event.target.value }) },
  })
  const tags = Object.entries(data?.tags ?? {}).map(([tag, values]) => `${tag}=${values.slice(0, 3).join('|')}`)
  return (
    <>
      <fieldset className="mb-3">
        <legend className="mb-1 text-sm font-medium">Regions and cells <span className="font-normal text-muted">(none chosen means all)</span></legend>
        <div className="max-h-40 overflow-y-auto rounded-md border border-line px-2 py-1">
          {regions.map((region) => (
            <div key={region}>
              <Checkbox label={<>Region {region}</>} checked={form.regions.includes(region)} onChange={(on) => { set({ regions: toggled(form.regions, region, on) }) }} />
              <div className="pl-5">
                {data?.cells.filter((cell) => cell.region_id === region).map((cell) => (
                  <Checkbox
                    key={cell.cell}
                    label={<>{cell.cell} <span className="text-xs text-muted">{cell.computes} computes, {cell.pushdown_on} have it</span></>}
                    checked={form.cells.includes(cell.cell)}
                    onChange={(on) => { set({ cells: toggled(form.cells, cell.cell, on) }) }}
                  />
                ))}
              </div>
            </div>
          ))}
        </div>
      </fieldset>
      <OrganizationsField {...props} />
      <ProjectsField {...props} />
      <div className="grid grid-cols-2 gap-x-3">
        <TextField label="Size from, GiB" inputMode="decimal" {...text('sizeMin')} />
        <TextField label="Size to, GiB" inputMode="decimal" {...text('sizeMax')} />
        <TextField label="WAL now from, KiB/s" inputMode="decimal" {...text('walMin')} />
        <TextField label="WAL now to, KiB/s" inputMode="decimal" {...text('walMax')} />
        <TextField label="Postgres versions" placeholder="any" {...text('pgVersions')} />
        <TextField label="Tags, all of them" placeholder="name=value, …" hint={tags.length > 0 ? `In use: ${tags.slice(0, 4).join(', ')}` : undefined} {...text('tags')} />
      </div>
    </>
  )
}

export function WavesFields({ form, errors, set }: FieldsProps) {
  const change = (key: number, patch: Partial<WaveRow>) => { set({ waves: form.waves.map((row) => (row.key === key ? { ...row, ...patch } : row)) }) }
  return (
    <div>
      <p className="mb-2 text-xs text-muted">Per cent counts everyone up to and with the wave. Waves that come out empty fall away. Each is spread over cells, sizes and write rates.</p>
      {form.waves.map((row, index) => (
        <fieldset key={row.key} className="mb-1 grid grid-cols-[minmax(0,1fr)_4.5rem_6.5rem_5rem_2rem] items-start gap-1.5 [&>div]:mb-0">
          <legend className="sr-only">Wave {index + 1}</legend>
          <TextField label={index === 0 ? 'Wave' : `Wave ${String(index + 1)}`} compact={index > 0} value={row.name} maxLength={LONGEST.wave} onChange={(event) => { change(row.key, { name: event.target.value }) }} />
          <TextField label="Amount" compact={index > 0} inputMode="decimal" value={row.amount} error={errors[`wave-${row.key}`]} onChange={(event) => { change(row.key, { amount: event.target.value }) }} />
          <SelectField label="Of" compact={index > 0} value={row.by} onChange={(event) => { change(row.key, { by: event.target.value === 'count' ? 'count' : 'percent' }) }}>
            <option value="count">computes</option>
            <option value="percent">per cent</option>
          </SelectField>
          <TextField label="Soak, s" compact={index > 0} inputMode="numeric" placeholder={form.soak} value={row.soak} onChange={(event) => { change(row.key, { soak: event.target.value }) }} />
          <Button variant="quiet" className={index === 0 ? 'mt-6 px-1' : 'px-1'} aria-label={`Remove wave ${row.name || String(index + 1)}`} disabledReason={form.waves.length === 1 ? 'A rollout has at least one wave.' : null} onClick={() => { set({ waves: form.waves.filter((other) => other.key !== row.key) }) }}>
            <X aria-hidden size={15} />
          </Button>
        </fieldset>
      ))}
      <Button
        className="mt-2"
        onClick={() => {
          const key = Math.max(0, ...form.waves.map((row) => row.key)) + 1
          set({ waves: [...form.waves, { key, name: '', by: 'percent', amount: '100', soak: '' }] })
        }}
      >
        <Plus aria-hidden size={14} /> Add wave
      </Button>
    </div>
  )
}
