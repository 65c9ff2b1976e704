import * as z from 'zod/mini'

type Schema = z.core.$ZodType

/** What the API takes of a number. */
export type Bounds = {
  low: number
  /** Of a whole number at most the largest that a browser has exactly. */
  high: number
  /** `low` itself is not taken. */
  above: boolean
  whole: boolean
  /** What holds where nothing is said; undefined where nothing may be said and means nothing. */
  initial: number | undefined
}

type Facts = {
  type?: string
  minimum?: number
  exclusiveMinimum?: number
  maximum?: number
  minLength?: number
  maxLength?: number
  maxItems?: number
  default?: unknown
}

/** What a field is where it is neither left out nor null. */
function factsOf(field: Schema): Facts {
  const { anyOf, ...facts } = z.toJSONSchema(field) as Facts & { anyOf?: Facts[] }
  return { ...facts, ...anyOf?.find((each) => each.type !== 'null') }
}

/** The bounds of a number in a generated schema. */
export function boundsOf(field: Schema): Bounds {
  const { type, minimum, exclusiveMinimum, maximum, default: initial } = factsOf(field)
  return {
    low: exclusiveMinimum ?? minimum ?? -Infinity,
    high: maximum ?? Infinity,
    above: exclusiveMinimum !== undefined,
    whole: type === 'integer',
    initial: typeof initial === 'number' ? initial : undefined,
  }
}

/** Characters that a text in a generated schema may have; undefined where there is no limit. */
export function longest(field: Schema): number | undefined {
  return factsOf(field).maxLength
}

/** Characters that a text in a generated schema has to have at least; 0 where that is not said. */
export function shortest(field: Schema): number {
  return factsOf(field).minLength ?? 0
}

/** Items that a list in a generated schema may have; undefined where there is no limit. */
export function mostItems(field: Schema): number | undefined {
  return factsOf(field).maxItems
}

/** What is wrong with a value, in words: the schemas come without any. */
export function issueText(issue: z.core.$ZodIssue): string {
  const of = 'origin' in issue ? ({ string: ' characters', array: '' }[issue.origin as string] ?? '') : ''
  if (issue.code === 'too_big') return `At most ${String(issue.maximum)}${of}.`
  if (issue.code === 'too_small') return `At least ${String(issue.minimum)}${of}.`
  return 'Not as the API takes it.'
}
