import type { ComputeDetail } from '~/api/types'

type Prewarm = ComputeDetail['prewarm']

/** How warm the last start was, in a few words. */
export function prewarmText(prewarm: Prewarm): string {
  if (!prewarm) return '—'
  const listed = prewarm.pages_listed.toLocaleString('en')
  switch (prewarm.state) {
    case 'off':
      return 'off'
    case 'no_list':
    case 'ignored':
      return 'cold'
    case 'loading':
      return `loading ${listed} pages`
    case 'stopped':
      return 'stopped'
    case 'loaded':
      return prewarm.pages_loaded == null
        ? `${listed} pages`
        : `${prewarm.pages_loaded.toLocaleString('en')} of ${listed} pages`
  }
}

/** Why, or how long it took; undefined where there is nothing to say. */
export function prewarmNote(prewarm: Prewarm): string | undefined {
  if (!prewarm) return undefined
  if (prewarm.reason) return prewarm.reason
  switch (prewarm.state) {
    case 'off':
      return 'switched off for this compute'
    case 'no_list':
      return 'a first start, or one after a crash'
    case 'loading':
      return 'behind the queries of clients'
    default:
      return prewarm.seconds == null ? undefined : `in memory ${prewarm.seconds.toFixed(1)} s after the start`
  }
}
