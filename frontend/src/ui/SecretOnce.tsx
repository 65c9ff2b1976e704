import { Button } from './Button'
import { Copy } from './Copy'
import { Dialog } from './Dialog'

type Props = { title: string; description: string; label: string; secret: string; onClose: () => void }

/** A secret that is shown this once: whoever closes the dialog has copied it or needs another. */
export function SecretOnce({ title, description, label, secret, onClose }: Props) {
  return (
    <Dialog onClose={onClose} title={title} description={description}>
      <div className="mb-4 flex items-start gap-1">
        <pre className="min-w-0 flex-1 rounded-md bg-raised px-3 py-2 text-xs break-all whitespace-pre-wrap">
          <code aria-label={label}>{secret}</code>
        </pre>
        <Copy text={secret} label={label} />
      </div>
      <div className="flex justify-end">
        <Button variant="primary" onClick={onClose}>
          Done
        </Button>
      </div>
    </Dialog>
  )
}
