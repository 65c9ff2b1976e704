import { describe, expect, it } from 'vitest'

import document from '../../../../openapi/weir.json?raw'
import { marks, readForm } from './plan-body'
import { chooseFeature, DEFAULT_FORM, type PlanForm, selectorText, wavesText, whenText } from './plan-form'

const form = (change: Partial<PlanForm>): PlanForm => ({ ...DEFAULT_FORM, ...change })

describe('the plan editor', () => {
  it('starts as a careful rollout of everyone that the API takes as it is', () => {
    const { body, errors } = readForm(DEFAULT_FORM)
    expect(errors).toEqual({})
    expect(body.selector).toEqual({})
    expect(body.strategy?.waves?.[0]).toEqual({ count: 1, name: 'canary' })
    expect(body.strategy?.waves?.at(-1)).toEqual({ percent: 100, name: 'everyone' })
  })

  it('rolls out a minor without what belongs to image pushdown, and settles for longer', () => {
    const minor = form(chooseFeature(DEFAULT_FORM, 'postgres_minor'))
    expect(readForm(minor).body).toMatchObject({
      name: 'Postgres minor',
      feature: 'postgres_minor',
      strategy: { settle_seconds: 30 },
    })
    expect(readForm(minor).body.strategy).not.toHaveProperty('max_image_share')
    expect(readForm(minor).body.strategy).not.toHaveProperty('target_version')
    expect(readForm({ ...minor, target: ' 15.20 ' }).body.strategy?.target_version).toBe('15.20')
    expect(readForm({ ...minor, target: 'newest' }).errors.target).toBeDefined()
    // What somebody has typed stays.
    expect(chooseFeature(form({ name: 'June', settle: '60' }), 'postgres_minor')).toMatchObject({
      name: 'June',
      settle: '60',
    })
  })

  it('sends sizes in bytes and rates in bytes a second, open ends left out', () => {
    const { body } = readForm(form({ sizeMin: '1.5', walMax: '10' }))
    expect(body.selector).toEqual({ size_bytes: { min: 1.5 * 2 ** 30 }, wal_bytes_per_second: { max: 10_240 } })
  })

  it('reads tags and versions, and says which it cannot read', () => {
    expect(readForm(form({ tags: 'env=prod, team = shop', pgVersions: '15, 17' })).body.selector).toEqual({
      tags: { env: 'prod', team: 'shop' },
      pg_versions: [15, 17],
    })
    expect(readForm(form({ tags: 'prod' })).errors.tags).toContain('“prod”')
    expect(readForm(form({ pgVersions: 'fifteen' })).errors.pgVersions).toBeDefined()
  })

  it('names each field that is out of range, and does not mend it silently', () => {
    const { errors } = readForm(
      form({
        bake: '',
        concurrent: '0',
        sizeMin: '5',
        sizeMax: '2',
        waves: [{ key: 9, name: '', by: 'percent', amount: '101', soak: '' }],
        name: ' ',
      }),
    )
    expect(Object.keys(errors).sort()).toEqual(['bake', 'concurrent', 'name', 'sizeMax', 'wave-9'])
  })

  it('marks the fields of the rows that are wrong, and leaves to the API nothing that its document says', () => {
    const waves = [
      ...DEFAULT_FORM.waves.slice(1),
      { key: 9, name: 'x'.repeat(257), by: 'count' as const, amount: '1', soak: '' },
    ]
    const wrong = form({ waves, tags: 'a=b', pgVersions: Array.from({ length: 21 }, (_, at) => at + 1).join(' ') })
    const { errors } = readForm(wrong)
    expect(errors).toEqual({ 'wave-9': 'At most 256 characters.', pgVersions: 'At most 20.' })
    expect(marks(wrong, errors)).toMatchObject({
      'waves[4].amount': 'At most 256 characters.',
      pgVersions: 'At most 20.',
    })
    expect(readForm(form({ perCell: '0' })).errors.perCell).toBe('At least 1, in computes.')
    expect(
      readForm(
        form({
          waves: Array.from({ length: 21 }, (_, key) => ({
            key,
            name: '',
            by: 'count' as const,
            amount: '1',
            soak: '',
          })),
        }),
      ).errors.waves,
    ).toBe('At most 20.')
  })

  it('asks for a baseline where something is judged', () => {
    expect(readForm(form({ baseline: '0' })).errors.baseline).toContain('against a baseline')
    expect(readForm(form({ baseline: '0', bake: '0' })).errors).toEqual({})
  })

  it('says how computes are judged, and what a pass must rule out', () => {
    expect(readForm(DEFAULT_FORM).body.strategy).toMatchObject({ judge_by: 'controls', tolerated_ratio: 1.25 })
    expect(readForm(form({ judgeBy: 'bounds' })).body.strategy?.judge_by).toBe('bounds')
    expect(readForm(form({ tolerated: '1' })).errors.tolerated).toBeDefined()
  })

  it('needs a day for a weekly freeze, and ends in order for a single one', () => {
    const weekly = { kind: 'weekly' as const, key: 3, weekdays: [], start: '08:00', end: '18:00', reason: '' }
    expect(readForm(form({ freezes: [weekly] })).errors['freeze-3']).toBeDefined()
    expect(readForm(form({ freezes: [{ ...weekly, weekdays: [5] }] })).body.strategy?.freeze_windows).toEqual([
      { weekdays: [5], start_time: '08:00', end_time: '18:00' },
    ])
    const once = {
      kind: 'once' as const,
      key: 4,
      from: '2026-12-20T00:00',
      to: '2027-01-04T08:00',
      reason: 'holidays',
    }
    expect(readForm(form({ freezes: [once] })).body.strategy?.freeze_windows).toEqual([
      { from: '2026-12-20T00:00:00.000Z', to: '2027-01-04T08:00:00.000Z', reason: 'holidays' },
    ])
    expect(readForm(form({ freezes: [{ ...once, to: once.from }] })).errors['freeze-4']).toContain('after it begins')
    expect(readForm(form({ freezes: [{ ...once, to: '' }] })).errors['freeze-4']).toContain('ends')
  })

  it('sends bounds in the API’s units, and leaves out those that nobody set', () => {
    const { body } = readForm(DEFAULT_FORM)
    expect(body.strategy).toMatchObject({
      max_p99_ratio: 3,
      p99_slack_seconds: 0.25,
      max_image_share: 0.02,
      settle_seconds: 5,
    })
    expect(body.strategy).not.toHaveProperty('max_chain_length')
    expect(body.strategy).not.toHaveProperty('image_threshold')
    expect(readForm(form({ chainLength: '30', imageThreshold: '12' })).body.strategy).toMatchObject({
      max_chain_length: 30,
      image_threshold: 12,
    })
    expect(readForm(form({ chainLength: '0' })).errors.chainLength).toBeDefined()
  })

  it('chooses organisations by id and names them', () => {
    const orgs = [{ id: 'b4e3', name: 'acme' }]
    expect(readForm(form({ orgs })).body.selector).toEqual({ org_ids: ['b4e3'] })
    expect(selectorText(form({ orgs }))).toBe('of acme')
  })

  it('has a field for everything a selector and a strategy can say', () => {
    const { schemas } = (JSON.parse(document) as { components: { schemas: Record<string, { properties: object }> } })
      .components
    const named = [{ id: 'x', name: 'x' }]
    const full = form({
      ...{
        regions: ['eu'],
        cells: ['eu-1'],
        orgs: named,
        projects: named,
        tags: 'a=b',
        pgVersions: '17',
        sizeMin: '1',
        walMin: '1',
      },
      ...{ perCell: '5', perOrg: '5', chainLength: '30', imageThreshold: '12' },
    })
    const { body, errors } = readForm(full)
    expect(errors).toEqual({})
    expect(Object.keys(body.selector ?? {}).sort()).toEqual(Object.keys(schemas.Selector?.properties ?? {}).sort())
    // What only one feature knows is sent with that one.
    const minor = readForm({ ...full, feature: 'postgres_minor', target: '15.20' })
    expect(minor.errors).toEqual({})
    const said = new Set([...Object.keys(body.strategy ?? {}), ...Object.keys(minor.body.strategy ?? {})])
    expect([...said].sort()).toEqual(Object.keys(schemas.Strategy?.properties ?? {}).sort())
  })

  it('says in one line who and how', () => {
    expect(selectorText(DEFAULT_FORM)).toBe('every compute')
    expect(selectorText(form({ cells: ['eu-1'], walMin: '5' }))).toBe('cell eu-1 · WAL 5 to ∞ KiB/s')
    expect(whenText(DEFAULT_FORM)).toBe('in maintenance windows, no freeze')
    expect(wavesText(DEFAULT_FORM)).toBe('1 → 1 % → 5 % → 25 % → 100 %')
  })
})
