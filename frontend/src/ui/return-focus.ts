import { useRef } from 'react'

/** What has the keyboard, and what of the page around it can have it, the nearest first. */
function placesNow(): HTMLElement[] {
  const places: HTMLElement[] = []
  let at: Element | null = document.activeElement
  while (at instanceof HTMLElement && at !== document.body) {
    places.push(at)
    at = at.parentElement?.closest('[tabindex]') ?? null
  }
  const main = document.querySelector('main')
  return main && !places.includes(main) ? [...places, main] : places
}

/**
 * Gives the keyboard back once a dialog is closed: to what opened it, or, where that went with what was done (the row of
 * something that was removed), to the nearest place around it. The dialogs' library does so for triggers of its own alone.
 */
export function useReturnFocus() {
  const places = useRef<HTMLElement[]>([])
  return {
    onOpenAutoFocus: () => {
      places.current = placesNow()
    },
    onCloseAutoFocus: (event: Event) => {
      event.preventDefault()
      // The next step of the same flow is a dialog of its own, and has the keyboard.
      if (document.querySelector('[role=dialog][data-state=open]')) return
      for (const place of places.current) {
        place.focus()
        if (document.activeElement === place) return
      }
    },
  }
}
