import { clsx } from 'clsx'
import {
  type InputHTMLAttributes,
  type ReactNode,
  type SelectHTMLAttributes,
  type TextareaHTMLAttributes,
  useId,
} from 'react'

const CONTROL =
  'w-full rounded-md border border-line bg-panel px-2.5 py-1.5 text-sm text-text placeholder:text-muted aria-[invalid=true]:border-bad'

type Common = {
  label: string
  hint?: ReactNode
  error?: string | null | undefined
  /** The label is for screen readers only: one above names the column. */
  compact?: boolean
}

function Shell({ id, label, hint, error, compact, children }: Common & { id: string; children: ReactNode }) {
  return (
    <div className="mb-3">
      <label htmlFor={id} className={compact ? 'sr-only' : 'mb-1 block text-sm font-medium'}>
        {label}
      </label>
      {children}
      {hint && (
        <p id={`${id}-hint`} className="mt-1 text-xs text-muted">
          {hint}
        </p>
      )}
      {error && (
        <p id={`${id}-error`} role="alert" className="mt-1 text-xs text-bad">
          {error}
        </p>
      )}
    </div>
  )
}

function described(id: string, hint: ReactNode, error: string | null | undefined) {
  return [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(' ') || undefined
}

export function TextField({
  label,
  hint,
  error,
  compact,
  className,
  ...rest
}: Common & InputHTMLAttributes<HTMLInputElement>) {
  const id = useId()
  return (
    <Shell id={id} label={label} hint={hint} error={error} compact={compact ?? false}>
      <input
        id={id}
        {...rest}
        aria-invalid={Boolean(error)}
        aria-describedby={described(id, hint, error)}
        className={clsx(CONTROL, className)}
      />
    </Shell>
  )
}

export function TextAreaField({
  label,
  hint,
  error,
  compact,
  className,
  ...rest
}: Common & TextareaHTMLAttributes<HTMLTextAreaElement>) {
  const id = useId()
  return (
    <Shell id={id} label={label} hint={hint} error={error} compact={compact ?? false}>
      <textarea
        id={id}
        {...rest}
        aria-invalid={Boolean(error)}
        aria-describedby={described(id, hint, error)}
        className={clsx(CONTROL, className)}
      />
    </Shell>
  )
}

export function SelectField({
  label,
  hint,
  error,
  compact,
  children,
  className,
  ...rest
}: Common & SelectHTMLAttributes<HTMLSelectElement>) {
  const id = useId()
  return (
    <Shell id={id} label={label} hint={hint} error={error} compact={compact ?? false}>
      <select
        id={id}
        {...rest}
        aria-invalid={Boolean(error)}
        aria-describedby={described(id, hint, error)}
        className={clsx(CONTROL, className)}
      >
        {children}
      </select>
    </Shell>
  )
}

export function Checkbox({
  label,
  checked,
  onChange,
}: {
  label: ReactNode
  checked: boolean
  onChange: (checked: boolean) => void
}) {
  return (
    <label className="flex min-h-7 items-center gap-2 text-sm">
      <input
        type="checkbox"
        checked={checked}
        onChange={(event) => {
          onChange(event.target.checked)
        }}
      />
      {label}
    </label>
  )
}
