import { Dialog as Radix } from 'radix-ui'
import type { ReactNode } from 'react'

import { useReturnFocus } from './return-focus'

type Props = {
  /** Whether it is there; most are made when they are asked for and go when they are closed. */
  open?: boolean
  /** Escape was pressed, or something outside. */
  onClose: () => void
  title: string
  description?: string
  children: ReactNode
}

export function Dialog({ open = true, onClose, title, description, children }: Props) {
  const focus = useReturnFocus()
  return (
    <Radix.Root
      open={open}
      onOpenChange={(stays) => {
        if (!stays) onClose()
      }}
    >
      <Radix.Portal>
        <Radix.Overlay className="fixed inset-0 z-40 bg-black/45" />
        <Radix.Content
          {...focus}
          {...(description ? {} : { 'aria-describedby': undefined })}
          className={
            'fixed top-1/2 left-1/2 z-50 max-h-[90dvh] w-[min(34rem,calc(100vw-2rem))] -translate-x-1/2 ' +
            '-translate-y-1/2 overflow-y-auto rounded-lg border border-line bg-panel p-5 shadow-xl'
          }
        >
          <Radix.Title className="text-lg font-semibold">{title}</Radix.Title>
          {description && <Radix.Description className="mt-1 text-sm text-muted">{description}</Radix.Description>}
          <div className="mt-4">{children}</div>
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  )
}
