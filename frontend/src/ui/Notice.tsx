import { clsx } from 'clsx'
import type { ReactNode } from 'react'

const TONES = {
  info: 'border-line bg-raised text-text',
  warn: 'border-transparent bg-warn-soft text-warn',
  bad: 'border-transparent bg-bad-soft text-bad',
} as const

export function Notice({
  tone = 'info',
  children,
  role,
}: {
  tone?: keyof typeof TONES
  children: ReactNode
  role?: 'alert' | 'status'
}) {
  return (
    <div
      role={role ?? (tone === 'bad' ? 'alert' : 'status')}
      className={clsx('rounded-md border px-3 py-2 text-sm', TONES[tone])}
    >
      {children}
    </div>
  )
}

export function Loading({ what }: { what: string }) {
  return (
    <p role="status" className="flex items-center gap-2 py-6 text-muted">
      <span aria-hidden className="size-4 animate-spin rounded-full border-2 border-current border-t-transparent" />
      Loading {what}…
    </p>
  )
}
