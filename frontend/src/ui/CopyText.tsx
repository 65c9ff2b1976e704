import { Copy } from './Copy'

/** A text with a button that copies it; the label names it. */
export function CopyText({ text, label }: { text: string; label: string }) {
  return (
    <div className="flex items-start gap-1">
      <pre className="min-w-0 flex-1 rounded-md bg-raised px-3 py-2 text-xs break-all whitespace-pre-wrap">
        <code aria-label={label}>{text}</code>
      </pre>
      <Copy text={text} label={label} />
    </div>
  )
}
