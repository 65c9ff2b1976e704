import { Check, Copy as CopyIcon, X } from 'lucide-react'
import { useState } from 'react'

type State = 'ready' | 'copied' | 'failed'

const ICONS = { ready: CopyIcon, copied: Check, failed: X } as const

/** Browsers give the clipboard to pages of https and of this machine alone, and may ask the person. */
async function copied(text: string): Promise<State> {
  try {
    await navigator.clipboard.writeText(text)
    return 'copied'
  } catch {
    return 'failed'
  }
}

/** Copies text; the label names what is copied so that it makes sense out of context. */
export function Copy({ text, label }: { text: string; label: string }) {
  const [state, setState] = useState<State>('ready')
  const said = {
    ready: `Copy ${label}`,
    copied: `${label} copied`,
    failed: `${label} is not copied: the browser refuses. Select the text and copy it.`,
  }[state]
  const Icon = ICONS[state]
  return (
    <button
      type="button"
      aria-label={said}
      title={state === 'failed' ? said : undefined}
      className="inline-flex size-7 flex-none items-center justify-center rounded-md text-muted hover:bg-raised hover:text-text"
      onClick={() => {
        void copied(text).then((next) => {
          setState(next)
          if (next === 'copied')
            setTimeout(() => {
              setState('ready')
            }, 1500)
        })
      }}
    >
      <Icon aria-hidden size={14} />
    </button>
  )
}
