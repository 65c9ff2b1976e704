import type { ReactNode } from 'react'

type Props = { title: ReactNode; above?: ReactNode; note?: ReactNode; badge?: ReactNode; actions?: ReactNode }

export function PageHeader({ title, above, note, badge, actions }: Props) {
  return (
    <header className="mb-5 flex flex-wrap items-start justify-between gap-3">
      <div className="min-w-0">
        {above && <p className="text-sm text-muted">{above}</p>}
        <h1 className="flex flex-wrap items-center gap-2 text-2xl font-semibold break-all">
          {title}
          {badge}
        </h1>
        {note && <p className="text-sm text-muted">{note}</p>}
      </div>
      {actions && <div className="flex flex-wrap gap-2">{actions}</div>}
    </header>
  )
}
