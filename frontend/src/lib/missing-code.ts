/** What browsers say where the code of a page or dialog does not come: Chromium and Firefox, then Safari. */
const SAID = /dynamically imported module|^Importing a module script failed/

/** Whether a failure is that a part of the console itself did not come, since it is gone or nobody answers. */
export function isMissingCode(error: unknown): boolean {
  return error instanceof TypeError && SAID.test(error.message)
}
