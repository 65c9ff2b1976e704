import { bytes } from '~/lib/format'
import { BarChart } from '~/ui/BarChart'
import { Button } from '~/ui/Button'
import { Card } from '~/ui/Card'
import { SelectField } from '~/ui/Field'
import { Stat, Stats } from '~/ui/Stat'
import { Table } from '~/ui/Table'

import { CHARTED, csvOfRows, FIGURES, heldNow, totalOf, type UsageRow } from './figures'
import { RANGES, type RangeName } from './range'
import { saveText } from './save'

export function RangeField({ range, onChange }: { range: RangeName; onChange: (range: RangeName) => void }) {
  return (
    <SelectField
      label="Range"
      value={range}
      className="w-auto"
      onChange={(event) => {
        onChange(event.target.value as RangeName)
      }}
    >
      {Object.entries(RANGES).map(([name, { label }]) => (
        <option key={name} value={name}>
          {label}
        </option>
      ))}
    </SelectField>
  )
}

/** Sums, charts and the figures of a range; the newest timeframe first in the table. `file`: what an export is called. */
export function Usage({ rows, file }: { rows: UsageRow[]; file: string }) {
  return (
    <div className="grid gap-4">
      <Card title="Together" note="Over the whole range. Figures are measured about each minute; times are in UTC.">
        <Stats>
          {FIGURES.map(({ name, label, format }) => (
            <Stat key={name} label={label} value={format(totalOf(rows, name))} />
          ))}
          <Stat label="Held now" value={bytes(heldNow(rows))} note="data, and WAL of the history" />
        </Stats>
      </Card>
      <div className="grid gap-4 lg:grid-cols-3">
        {FIGURES.filter(({ name }) => CHARTED.includes(name)).map(({ name, label, color, format }) => (
          <Card key={name} title={label}>
            <BarChart
              title={label}
              color={color}
              format={format}
              bars={rows.map((row) => ({ key: row.key, label: row.key, value: row.frame?.[name] ?? null }))}
            />
          </Card>
        ))}
      </div>
      <Card
        title="Figures"
        note="A dash is where nothing was measured: no compute ran, and storage was not asked."
        actions={
          <Button
            onClick={() => {
              saveText(`${file}.csv`, csvOfRows(rows))
            }}
          >
            Export CSV
          </Button>
        }
      >
        <Table
          caption="Usage"
          cards
          rows={rows.toReversed()}
          rowKey={(row) => row.key}
          empty="Nothing was measured yet."
          columns={[
            { key: 'start', header: 'From', sort: (row) => row.key, cell: (row) => row.key },
            ...FIGURES.map(({ name, label, format }) => ({
              key: name,
              header: label,
              numeric: true,
              sort: (row: UsageRow) => row.frame?.[name] ?? -1,
              cell: (row: UsageRow) => (row.frame === null ? '—' : format(row.frame[name])),
            })),
          ]}
        />
      </Card>
    </div>
  )
}
