/** A moment as a `datetime-local` field has it: of the reader's time zone, to the second. */
export function localField(moment: number): string {
  const local = new Date(moment - new Date(moment).getTimezoneOffset() * 60_000)
  return local.toISOString().slice(0, 19)
}
