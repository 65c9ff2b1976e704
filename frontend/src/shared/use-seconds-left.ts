import { useEffect, useState } from 'react'

/** A span of time in which there is no use in trying again: moments in ms, as `Date.now`. */
export type Wait = { from: number; until: number }

/** Whole seconds that are left of a wait, counted down; 0 once it is over, and where there is none. */
export function useSecondsLeft(wait: Wait | null): number {
  const [now, setNow] = useState(0)
  useEffect(() => {
    if (wait === null) return
    const timer = setInterval(() => {
      setNow(Date.now())
    }, 250)
    return () => {
      clearInterval(timer)
    }
  }, [wait])
  // What was read of the clock last may be older than the wait.
  return wait === null ? 0 : Math.max(0, Math.ceil((wait.until - Math.max(now, wait.from)) / 1000))
}
