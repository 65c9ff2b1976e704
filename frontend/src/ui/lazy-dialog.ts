import { type ComponentType, createElement, lazy, Suspense } from 'react'

/** A dialog whose code, with all that forms need, comes when it is first opened; until then nothing is drawn of it. */
export function lazyDialog<Props extends object>(load: () => Promise<ComponentType<Props>>): ComponentType<Props> {
  const Loaded = lazy(async () => ({ default: await load() })) as unknown as ComponentType<Props>
  return function Dialog(props) {
    return createElement(Suspense, { fallback: null }, createElement(Loaded, props))
  }
}
