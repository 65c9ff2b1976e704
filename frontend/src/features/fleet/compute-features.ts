import type { components } from '~/api/generated/schema'

/** What can be rolled out. */
export type Feature = NonNullable<components['schemas']['RolloutCreateRequest']['feature']>

type Words = {
  name: string
  explains: string
  /** What starting does to these computes: "stop logging page images, ...". */
  does: (target: string | null | undefined) => string
  /** What going back does to one compute, to several, and how. */
  back: { one: string; many: string; how: string }
  /** What a compute that is left out keeps doing. */
  keeps: string
  settles: string
}

export const FEATURES: Record<Feature, Words> = {
  image_pushdown: {
    name: 'Image pushdown',
    explains:
      'Postgres stops logging page images, storage makes them instead. No connection is dropped, no compute restarts.',
    does: () => 'stop logging page images, without a restart',
    back: {
      one: 'logs page images again',
      many: 'log page images again',
      how: 'by the same record in reverse; no connection is dropped and no compute restarts.',
    },
    keeps: 'keeps logging page images',
    settles: 'Not measured: the first checkpoint’s images run out.',
  },
  postgres_minor: {
    name: 'Postgres minor',
    explains:
      'Each compute is restarted onto another minor of Postgres: its clients are disconnected for a few seconds, and how long is measured.',
    does: (target) =>
      `are restarted onto Postgres ${target ?? 'of the newest minor'}, each disconnecting its clients for a few seconds`,
    back: {
      one: 'runs its previous minor again',
      many: 'run their previous minors again',
      how: 'by another restart: clients are disconnected for a few seconds once more.',
    },
    keeps: 'keeps the minor it runs',
    settles: 'Not measured: after a restart pages come from storage until they are in memory again.',
  },
}

export const FEATURE_NAMES = Object.keys(FEATURES) as Feature[]

export const isFeature = (name: unknown): name is Feature => typeof name === 'string' && name in FEATURES

export const featureOf = (name: string): Words => FEATURES[isFeature(name) ? name : 'image_pushdown']
