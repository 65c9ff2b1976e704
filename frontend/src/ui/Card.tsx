import { clsx } from 'clsx'
import { type ReactNode, useId } from 'react'

type Props = {
  title?: ReactNode
  /** One line on what is shown: window, source, unit. */
  note?: ReactNode
  actions?: ReactNode
  children: ReactNode
  className?: string
}

export function Card({ title, note, actions, children, className }: Props) {
  const id = useId()
  return (
    <section
      aria-labelledby={title ? id : undefined}
      className={clsx('min-w-0 rounded-lg border border-line bg-panel p-4', className)}
    >
      {(title || actions) && (
        <header className="mb-3 flex flex-wrap items-start justify-between gap-2">
          <div className="min-w-0">
            {title && (
              <h2 id={id} className="text-base font-semibold">
                {title}
              </h2>
            )}
            {note && <p className="text-xs text-muted">{note}</p>}
          </div>
          {actions && <div className="flex flex-wrap gap-2">{actions}</div>}
        </header>
      )}
      {children}
    </section>
  )
}
