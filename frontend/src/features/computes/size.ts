import type { ComputeDetail } from '~/api/types'
import { bytes } from '~/lib/format'

/** A size in words, by what is known of its limits. */
export function sizeText(units: number): string {
  return `${String(units)} CU`
}

/** What a compute does with its size; undefined while nobody knows. */
export function loadNote(load: ComputeDetail['load']): string | undefined {
  if (!load) return undefined
  const all = load.buffer_hits_per_second + load.buffer_reads_per_second
  const hits =
    all > 0 ? `, ${String(Math.round((load.buffer_hits_per_second / all) * 100))}% of pages from memory` : ''
  return `${load.processors.toFixed(2)} processors, ${bytes(load.memory_bytes)} used${hits}`
}
