import { bytes, percent } from '~/lib/format'
import { Meter } from '~/ui/Meter'

import { quotaUse } from './can'

const TONES = { under: 'accent', near: 'warn', reached: 'bad' } as const

/** A branch's data against the quota, where there is one. */
export function QuotaMeter({ name, used, limit }: { name: string; used: number | null | undefined; limit: number }) {
  const use = quotaUse(used, limit)
  if (!use) return null
  const text = `${bytes(used)} of ${bytes(limit)}, ${percent(use.share, 0)}`
  return (
    <div className="max-w-md">
      <Meter label={`Quota of ${name}`} text={text} share={use.share} tone={TONES[use.state]} />
      <p className="tabular mt-0.5 text-xs text-muted">
        {text}
        {use.state === 'reached' && <span className="font-medium text-bad"> — full: takes no more data</span>}
        {use.state === 'near' && <span className="font-medium text-warn"> — nearly full</span>}
      </p>
    </div>
  )
}
