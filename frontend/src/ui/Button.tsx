import { clsx } from 'clsx'
import { type ButtonHTMLAttributes, useContext } from 'react'

import { type Needs, Permission } from './permission'

type Variant = 'primary' | 'secondary' | 'danger' | 'quiet'

const VARIANTS: Record<Variant, string> = {
  primary: 'bg-accent text-accent-text hover:brightness-110 border-transparent',
  secondary: 'bg-panel text-text border-line hover:bg-raised',
  danger: 'bg-bad-soft text-bad border-transparent hover:brightness-95 dark:hover:brightness-125',
  quiet: 'bg-transparent text-text border-transparent hover:bg-raised',
}

type Props = ButtonHTMLAttributes<HTMLButtonElement> & {
  variant?: Variant
  /** The action is under way: disables the button and says so to assistive technology. */
  busy?: boolean
  /** Why the action is not possible now; disables the button and becomes its tooltip. */
  disabledReason?: string | null | undefined
  /** What the person has to be allowed for it; that they are not disables the button, before any other reason. */
  needs?: Needs
}

export function Button({
  variant = 'secondary',
  busy,
  disabledReason,
  needs,
  className,
  children,
  disabled,
  ...rest
}: Props) {
  const permission = useContext(Permission)
  const reason = (needs && permission(needs)) ?? disabledReason
  return (
    <button
      type="button"
      {...rest}
      disabled={disabled || busy || Boolean(reason)}
      title={reason ?? rest.title}
      aria-busy={busy}
      className={clsx(
        'inline-flex min-h-8 items-center justify-center gap-1.5 rounded-md border px-3 py-1 text-sm font-medium',
        'disabled:cursor-not-allowed disabled:opacity-55',
        VARIANTS[variant],
        className,
      )}
    >
      {busy && (
        <span aria-hidden className="size-3 animate-spin rounded-full border-2 border-current border-t-transparent" />
      )}
      {children}
    </button>
  )
}
