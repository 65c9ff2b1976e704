import { type ReactNode, useState } from 'react'

import { Button } from './Button'
import { Dialog } from './Dialog'
import { TextField } from './Field'

type Props = {
  /** What has to be typed before the button works. */
  name: string
  title: string
  description: string
  /** What the button says. */
  action?: string
  busy: boolean
  onDelete: () => void
  onClose: () => void
  /** What goes with it, above the field. */
  children?: ReactNode
}

/** Asks before something named goes for good: its name has to be typed. */
export function DeleteDialog(props: Props) {
  const { name, action = 'Delete for good', onClose } = props
  const [typed, setTyped] = useState('')
  return (
    <Dialog onClose={onClose} title={props.title} description={props.description}>
      {props.children}
      <TextField
        label={`Type ${name} to confirm`}
        value={typed}
        onChange={(event) => {
          setTyped(event.target.value)
        }}
      />
      <div className="flex flex-wrap justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button variant="danger" disabled={typed !== name} busy={props.busy} onClick={props.onDelete}>
          {action}
        </Button>
      </div>
    </Dialog>
  )
}
