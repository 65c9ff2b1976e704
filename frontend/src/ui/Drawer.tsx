import { X } from 'lucide-react'
import { Dialog as Radix } from 'radix-ui'
import type { ReactNode } from 'react'

import { useReturnFocus } from './return-focus'

type Props = { title: ReactNode; onClose: () => void; children: ReactNode }

/** A panel from the right that holds the keyboard until it is closed; the whole screen on narrow ones. */
export function Drawer({ title, onClose, children }: Props) {
  const focus = useReturnFocus()
  return (
    <Radix.Root
      open
      onOpenChange={(open) => {
        if (!open) onClose()
      }}
    >
      <Radix.Portal>
        <Radix.Overlay className="fixed inset-0 z-30 bg-black/45" />
        <Radix.Content
          {...focus}
          aria-describedby={undefined}
          className="fixed inset-y-0 right-0 z-40 w-[min(64rem,100vw)] overflow-y-auto border-l border-line bg-bg p-4 shadow-xl sm:p-6"
        >
          <div className="mb-4 flex items-start justify-between gap-3">
            <Radix.Title className="min-w-0 text-lg font-semibold break-words">{title}</Radix.Title>
            <Radix.Close
              aria-label="Close"
              className="inline-flex size-8 flex-none items-center justify-center rounded-md hover:bg-raised"
            >
              <X aria-hidden size={18} />
            </Radix.Close>
          </div>
          {children}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  )
}
