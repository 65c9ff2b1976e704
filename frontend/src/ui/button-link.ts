/** How a link looks that stands among buttons. */
export const BUTTON_LINK =
  'inline-flex min-h-8 items-center gap-1.5 rounded-md border border-line bg-panel px-3 py-1 ' +
  'text-sm font-medium hover:bg-raised'
