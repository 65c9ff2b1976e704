import { describe, expect, it } from 'vitest'
import * as z from 'zod/mini'

import { boundsOf, issueText, longest, shortest } from './bounds'
import {
  zApiKeyCreateRequest,
  zBranchRestoreRequest,
  zProjectUpdate,
  zStrategy,
  zWaveSpec,
} from './generated/zod/zod.gen'

describe('what the generated schemas say of a field', () => {
  it('is what the API takes of a number', () => {
    expect(boundsOf(zStrategy.shape.step_deadline_seconds)).toEqual({
      low: 10,
      high: 604_800,
      above: false,
      whole: true,
      initial: 600,
    })
    expect(boundsOf(zStrategy.shape.tolerated_ratio)).toMatchObject({
      low: 1.05,
      high: 10,
      whole: false,
      initial: 1.25,
    })
    expect(boundsOf(zStrategy.shape.max_concurrent_per_cell)).toMatchObject({
      low: 1,
      whole: true,
      initial: undefined,
    })
    expect(boundsOf(zStrategy.shape.max_chain_length)).toMatchObject({ low: 1, high: Infinity, whole: false })
    expect(boundsOf(zWaveSpec.shape.percent)).toMatchObject({ low: 0, above: true, high: 100 })
    expect(boundsOf(zProjectUpdate.shape.history_retention_seconds)).toMatchObject({ low: 0, high: 2_592_000 })
  })

  it('is how long a text may be', () => {
    expect(longest(zBranchRestoreRequest.shape.preserve_under_name)).toBe(256)
    expect(longest(zBranchRestoreRequest.shape.source_lsn)).toBeUndefined()
    expect(shortest(zApiKeyCreateRequest.shape.key_name)).toBe(1)
    expect(shortest(zBranchRestoreRequest.shape.source_lsn)).toBe(0)
  })

  it('is said in words where a value breaks it', () => {
    const told = (schema: z.ZodMiniType, value: unknown) => z.safeParse(schema, value).error?.issues.map(issueText)
    expect(told(zBranchRestoreRequest.shape.preserve_under_name, 'x'.repeat(257))).toEqual([
      'At most 256 characters.',
    ])
    expect(told(zStrategy.shape.waves, [])).toEqual(['At least 1.'])
    expect(told(zStrategy.shape.target_version, 'newest')).toEqual(['Not as the API takes it.'])
  })
})
