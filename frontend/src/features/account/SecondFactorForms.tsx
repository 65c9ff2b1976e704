import { useState } from 'react'

import { submits, useAppForm } from '~/shared/form'
import { Button } from '~/ui/Button'
import { Copy } from '~/ui/Copy'
import { Dialog } from '~/ui/Dialog'
import { QrCode } from '~/ui/QrCode'

import { ProofForm } from './ProofForm'
import { CODE, ProofEnd } from './ProofParts'
import { beginTotp, confirmTotp, endTotp } from './queries'
import { useProof } from './use-proof'

type Authenticator = { secret: string; uri: string }

/**
 * Sets a second factor up: the password again; then the secret, as a QR code and as text, and a first code of it; then
 * the recovery codes.
 */
export function SecondFactorSetUp({ onClose }: { onClose: () => void }) {
  const [begun, setBegun] = useState<Authenticator | null>(null)
  const [codes, setCodes] = useState<string[] | null>(null)
  if (codes) return <RecoveryCodes codes={codes} onClose={onClose} />
  if (begun) return <Confirm authenticator={begun} onConfirmed={setCodes} onClose={onClose} />
  return <Begin onBegun={setBegun} onClose={onClose} />
}

function Begin({ onBegun, onClose }: { onBegun: (made: Authenticator) => void; onClose: () => void }) {
  const begin = useProof(beginTotp, { done: 'A secret is made, which counts once you confirm it', onDone: onBegun })
  return (
    <ProofForm
      secondFactor={false}
      proof={begin}
      title="Set up a second factor"
      description="Signing in then asks for a code of an authenticator beside your password."
      label="Continue"
      onClose={onClose}
    />
  )
}

/** A secret in groups of four, as people read and type it. */
export function grouped(secret: string): string {
  return secret.replaceAll(/(.{4})(?=.)/g, '$1 ')
}

function Confirm(props: {
  authenticator: Authenticator
  onConfirmed: (codes: string[]) => void
  onClose: () => void
}) {
  const { secret, uri } = props.authenticator
  const confirm = useProof(confirmTotp, {
    done: 'Signing in asks for a code from now on',
    onDone: (made: { recovery_codes: string[] }) => {
      props.onConfirmed(made.recovery_codes)
    },
  })
  const form = useAppForm({
    defaultValues: { code: '' },
    onSubmit: ({ value }) => {
      confirm.mutate(value.code)
    },
  })
  return (
    <Dialog
      onClose={props.onClose}
      title="Add Weir to your authenticator"
      description="Scan the QR code with it, or type the secret into it. Then type the code that it shows. The secret is shown this once."
    >
      <div className="mb-4 flex justify-center">
        <QrCode text={uri} label="QR code of the secret, to be scanned by an authenticator" />
      </div>
      <dl className="mb-4 grid gap-3 text-sm">
        <Shown name="Secret" label="secret" text={secret}>
          {grouped(secret)}
        </Shown>
        <Shown name="The same as an address" label="address" text={uri}>
          {uri}
        </Shown>
      </dl>
      {uri.startsWith('otpauth://') && (
        <p className="mb-4 text-sm">
          <a href={uri} className="text-accent underline">
            Open it in an authenticator on this device
          </a>
        </p>
      )}
      <form onSubmit={submits(form)}>
        <form.AppField name="code">
          {(field) => (
            <field.Text {...CODE} inputMode="numeric" hint="Six digits, which the authenticator shows now." />
          )}
        </form.AppField>
        <ProofEnd refused={confirm.refused} busy={confirm.isPending} label="Confirm" onClose={props.onClose} />
      </form>
    </Dialog>
  )
}

function Shown({ name, label, text, children }: { name: string; label: string; text: string; children: string }) {
  return (
    <div>
      <dt className="mb-1 text-xs text-muted">{name}</dt>
      <dd className="flex items-start gap-1">
        <code aria-label={label} className="min-w-0 flex-1 rounded-md bg-raised px-3 py-2 text-xs break-all">
          {children}
        </code>
        <Copy text={text} label={label} />
      </dd>
    </div>
  )
}

/** Closed by its button alone: no later answer has the codes. */
function RecoveryCodes({ codes, onClose }: { codes: string[]; onClose: () => void }) {
  return (
    <Dialog
      onClose={() => undefined}
      title="Keep your recovery codes"
      description="Each signs in once in place of a code, on the day on which the authenticator is lost. They are shown this once."
    >
      <div className="mb-4 flex items-start gap-1">
        <ul
          aria-label="Recovery codes"
          className="grid min-w-0 flex-1 gap-x-6 gap-y-1 rounded-md bg-raised px-3 py-2 font-mono text-xs sm:grid-cols-2"
        >
          {codes.map((code) => (
            <li key={code}>{code}</li>
          ))}
        </ul>
        <Copy text={codes.join('\n')} label="recovery codes" />
      </div>
      <div className="flex justify-end">
        <Button variant="primary" onClick={onClose}>
          I have kept them
        </Button>
      </div>
    </Dialog>
  )
}

/** Ends the second factor of who is signed in, and its recovery codes. */
export function SecondFactorEnd({ onClose }: { onClose: () => void }) {
  const end = useProof(endTotp, { done: 'The password alone signs in from now on', onDone: onClose })
  return (
    <ProofForm
      secondFactor
      proof={end}
      title="End the second factor"
      description="From then on the password alone signs in. The recovery codes end too."
      label="End second factor"
      danger
      onClose={onClose}
    />
  )
}
