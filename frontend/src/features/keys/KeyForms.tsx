import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'

import { longest } from '~/api/bounds'
import { zApiKeyCreateRequest } from '~/api/generated/zod/zod.gen'
import type { ApiKey } from '~/api/types'
import { projectSearchQuery } from '~/features/projects/queries'
import { submits, useAppForm } from '~/shared/form'
import { useAction } from '~/shared/use-action'
import { Button } from '~/ui/Button'
import { DeleteDialog } from '~/ui/DeleteDialog'
import { Dialog } from '~/ui/Dialog'
import { SecretOnce } from '~/ui/SecretOnce'

import { createKey, keysKey, revokeKey } from './queries'

/** What was asked of the keys. */
export type KeyAsk = { what: 'create' } | { what: 'revoke'; key: ApiKey }

const DAY_MS = 86_400_000
/** Days for which a key may be made to count; 0 is without end. */
const LIVES = [
  { days: 0, label: 'never' },
  { days: 7, label: 'in 7 days' },
  { days: 30, label: 'in 30 days' },
  { days: 90, label: 'in 90 days' },
  { days: 365, label: 'in a year' },
] as const

/** The form for what was asked of the organisation's keys. */
export function KeyDialogs({ ask, onClose }: { ask: KeyAsk; onClose: () => void }) {
  return ask.what === 'create' ? (
    <KeyCreateForm onClose={onClose} />
  ) : (
    <KeyRevoke apiKey={ask.key} onClose={onClose} />
  )
}

function KeyCreateForm({ onClose }: { onClose: () => void }) {
  const [made, setMade] = useState<{ name: string; key: string } | null>(null)
  const { data } = useQuery(projectSearchQuery(''))
  const create = useAction(createKey, { done: 'Key created', invalidate: [keysKey], onDone: setMade })
  const form = useAppForm({
    defaultValues: { name: '', project: '', readOnly: false, days: '0' },
    onSubmit: ({ value }) => {
      const days = Number(value.days)
      create.mutate({
        name: value.name.trim(),
        projectId: value.project || null,
        readOnly: value.readOnly,
        expiresAt: days === 0 ? null : new Date(Date.now() + days * DAY_MS).toISOString(),
      })
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
    <Dialog onClose={onClose} title="New API key" description="Whoever has it may do what you may, or less.">
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
        <form.AppField name="project">
          {(field) => (
            <field.Select label="For" hint="A key of one project sees nothing else of the organisation.">
              <option value="">all of the organisation</option>
              {(data?.projects ?? []).map(({ id, name }) => (
                <option key={id} value={id}>
                  {`the project ${name}`}
                </option>
              ))}
            </field.Select>
          )}
        </form.AppField>
        <form.AppField name="days">
          {(field) => (
            <field.Select label="Expires">
              {LIVES.map(({ days, label }) => (
                <option key={days} value={String(days)}>
                  {label}
                </option>
              ))}
            </field.Select>
          )}
        </form.AppField>
        <div className="mb-3">
          <form.AppField name="readOnly">
            {(field) => <field.Check label="Reads only, and is shown no password" />}
          </form.AppField>
        </div>
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
