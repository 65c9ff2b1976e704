import { createContext } from 'react'

/**
 * How far a control reaches: it works in a project, or decides on it; the same in all of an organisation; or it runs the
 * installation.
 */
export type Needs = 'works' | 'decides' | 'works-in-all' | 'decides-on-all' | 'runs'

/** Why who uses the console may not use a control that needs this; null where they may, and where nothing is known of them. */
export const Permission = createContext<(needs: Needs) => string | null>(() => null)
