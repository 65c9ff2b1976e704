import { Button } from './Button'
import { CopyText } from './CopyText'
import { Dialog } from './Dialog'

type Props = { title: string; description: string; label: string; secret: string; onClose: () => void }

/** A secret that is shown this once: whoever closes the dialog has copied it or needs another. */
export function SecretOnce({ title, description, label, secret, onClose }: Props) {
  return (
    <Dialog onClose={onClose} title={title} description={description}>
      <div className="mb-4">
        <CopyText text={secret} label={label} />
      </div>
      <div className="flex justify-end">
        <Button variant="primary" onClick={onClose}>
          Done
        </Button>
      </div>
    </Dialog>
  )
}
