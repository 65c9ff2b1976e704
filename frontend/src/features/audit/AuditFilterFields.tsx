import { useState } from 'react'

import { localField } from '~/lib/local-time'
import { stateText } from '~/shared/states'
import { Button } from '~/ui/Button'
import { SelectField, TextField } from '~/ui/Field'

import type { AuditFilter } from './queries'
import { kindOf, KINDS } from './search'

const FIELDS = [
  { name: 'project', label: 'Project', placeholder: 'its id' },
  { name: 'resource', label: 'Resource', placeholder: 'such as branch/br-…' },
  { name: 'actor', label: 'Who', placeholder: 'an email, or an account’s name' },
  { name: 'action', label: 'Action', placeholder: 'role.delete, or role. for all' },
] as const

const MOMENTS = [
  { name: 'since', label: 'From' },
  { name: 'until', label: 'Before' },
] as const

type Props = {
  filter: AuditFilter
  /** Takes what a field has, which may make no sense yet. */
  onChange: (change: Record<string, string>) => void
}

/** Which entries of the log are shown. */
export function AuditFilterFields({ filter, onChange }: Props) {
  return (
    <div
      role="search"
      aria-label="Which entries"
      className="mb-2 grid items-start gap-x-3 sm:grid-cols-2 lg:grid-cols-4"
    >
      {FIELDS.map(({ name, label, placeholder }) => (
        <TextField
          key={name}
          label={label}
          type="search"
          placeholder={placeholder}
          value={filter[name] ?? ''}
          onChange={(event) => {
            onChange({ [name]: event.target.value })
          }}
        />
      ))}
      <SelectField
        label="Kind"
        value={kindOf(filter.action)}
        onChange={(event) => {
          onChange({ action: event.target.value === '' ? '' : `${event.target.value}.` })
        }}
      >
        <option value="">all</option>
        {KINDS.map((kind) => (
          <option key={kind} value={kind}>
            {stateText(kind)}
          </option>
        ))}
      </SelectField>
      {MOMENTS.map(({ name, label }) => (
        <MomentField
          key={name}
          label={label}
          moment={filter[name]}
          onChange={(text) => {
            onChange({ [name]: text })
          }}
        />
      ))}
      <div className="mb-3 flex sm:self-end">
        <Button
          disabledReason={Object.keys(filter).length === 0 ? 'All entries are shown.' : null}
          onClick={() => {
            onChange({ project: '', resource: '', actor: '', action: '', since: '', until: '' })
          }}
        >
          Show all
        </Button>
      </div>
    </div>
  )
}

/** Years are typed digit by digit: a moment of the year 2 is one of 2026 that is not whole yet. */
const OLDEST = '1970'

/** A moment, in the reader's time zone. `moment`: as the filter has it. */
function MomentField(props: { label: string; moment: string | undefined; onChange: (text: string) => void }) {
  const { label, moment, onChange } = props
  const [typed, setTyped] = useState<string | null>(null)
  return (
    <TextField
      label={label}
      type="datetime-local"
      max="9999-12-31T23:59"
      value={typed ?? (moment ? localField(Date.parse(moment)).slice(0, 16) : '')}
      onBlur={() => {
        setTyped(null)
      }}
      onChange={(event) => {
        const text = event.target.value
        setTyped(text)
        if (text === '' || text.slice(0, 4) >= OLDEST) onChange(text)
      }}
    />
  )
}
