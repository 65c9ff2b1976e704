import { useState } from 'react'

import { longest } from '~/api/bounds'
import { zApiKeyCreateRequest } from '~/api/generated/zod/zod.gen'
import type { ApiKey } from '~/api/types'
import { submits, useAppForm } from '~/shared/form'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { DeleteDialog } from '~/ui/DeleteDialog'
import { Dialog } from '~/ui/Dialog'
import { SecretOnce } from '~/ui/SecretOnce'

import { createKey, keysKey, revokeKey } from './queries'

/** What was asked of the keys. */
export type KeyAsk = { what: 'create' } | { what: 'revoke'; key: ApiKey }

/** The form for what was asked of the account's keys. */
export function KeyDialogs({ ask, onClose }: { ask: KeyAsk; onClose: () => void }) {
  return ask.what === 'create' ? (
    <KeyCreateForm onClose={onClose} />
  ) : (
    <KeyRevoke apiKey={ask.key} onClose={onClose} />
  )
}

function KeyCreateForm({ onClose }: { onClose: () => void }) {
  const [made, setMade] = useState<{ name: string; key: string } | null>(null)
  const create = useAction(createKey, { done: 'Key created', invalidate: [keysKey], onDone: setMade })
  const form = useAppForm({
    defaultValues: { name: '' },
    onSubmit: ({ value }) => {
      create.mutate(value.name.trim())
    },
  })
  if (made)
    return (
      <SecretOnce
        title={`Key ${made.name}`}
        description="It is shown this once: Weir keeps only a hash of it."
        label={`key ${made.name}`}
        secret={made.key}
        onClose={onClose}
      />
    )
  return (
    <Dialog onClose={onClose} title="New API key" description="Whoever has it may do all that your account may.">
      <form onSubmit={submits(form)}>
        <form.AppField name="name">
          {(field) => (
            <field.Text
              label="Name"
              required
              maxLength={longest(zApiKeyCreateRequest.shape.key_name)}
              hint="What uses it, so that you know later whether it may go."
            />
          )}
        </form.AppField>
        <Button variant="primary" type="submit" busy={create.isPending}>
          Create key
        </Button>
      </form>
    </Dialog>
  )
}

function KeyRevoke({ apiKey, onClose }: { apiKey: ApiKey; onClose: () => void }) {
  const revoke = useAction(() => revokeKey(apiKey.id), {
    done: `Key ${apiKey.name} is revoked`,
    invalidate: [keysKey],
    onDone: onClose,
  })
  return (
    <DeleteDialog
      name={apiKey.name}
      title={`Revoke ${apiKey.name}?`}
      description="What uses it is refused from now on, and console sessions that it opened end."
      busy={revoke.isPending}
      onDelete={() => {
        revoke.mutate(undefined)
      }}
      onClose={onClose}
    />
  )
}
