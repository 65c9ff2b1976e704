import { Check, Copy as CopyIcon } from 'lucide-react'
import { useState } from 'react'

/** Copies text; the label names what is copied so that it makes sense out of context. */
export function Copy({ text, label }: { text: string; label: string }) {
  const [copied, setCopied] = useState(false)
  return (
    <button
      type="button"
      aria-label={copied ? `${label} copied` : `Copy ${label}`}
      className="inline-flex size-7 items-center justify-center rounded-md text-muted hover:bg-raised hover:text-text"
      onClick={() => {
        void navigator.clipboard.writeText(text).then(() => {
          setCopied(true)
          setTimeout(() => {
            setCopied(false)
          }, 1500)
        })
      }}
    >
      {copied ? <Check aria-hidden size={14} /> : <CopyIcon aria-hidden size={14} />}
    </button>
  )
}
