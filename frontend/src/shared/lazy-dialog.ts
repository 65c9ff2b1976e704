import { lazyRouteComponent } from '@tanstack/react-router'
import { type ComponentType, createElement, Suspense } from 'react'

/**
 * A dialog whose code, with all that forms need, comes when it is first opened; until then nothing is drawn of it. Where
 * the code is gone, since another version of the console is served by now, the page is loaded again once.
 */
export function lazyDialog<Name extends string, Props extends object>(
  load: () => Promise<Record<Name, ComponentType<Props>>>,
  name: Name,
): ComponentType<Props> {
  const Loaded = lazyRouteComponent(load, name) as unknown as ComponentType<Props>
  return function Dialog(props) {
    return createElement(Suspense, { fallback: null }, createElement(Loaded, props))
  }
}
