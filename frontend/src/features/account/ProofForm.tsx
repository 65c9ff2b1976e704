import { submits, useAppForm } from '~/shared/form'
import { Dialog } from '~/ui/Dialog'

import { CODE, PASSWORD_AGAIN, ProofEnd } from './ProofParts'
import type { Proof } from './queries'
import type { useProof } from './use-proof'

type Props = {
  /** They have one, so that a code is asked for too. */
  secondFactor: boolean
  onClose: () => void
  proof: Pick<ReturnType<typeof useProof<Proof, unknown>>, 'refused' | 'isPending' | 'mutate'>
  title: string
  description: string
  label: string
  danger?: boolean
}

/** Asks for the password again before something is done. */
export function ProofForm({ proof, secondFactor, title, description, label, danger = false, onClose }: Props) {
  const form = useAppForm({
    defaultValues: { password: '', code: '' },
    onSubmit: ({ value }) => {
      proof.mutate(value)
    },
  })
  return (
    <Dialog onClose={onClose} title={title} description={description}>
      <form onSubmit={submits(form)}>
        <form.AppField name="password">{(field) => <field.Text {...PASSWORD_AGAIN} />}</form.AppField>
        {secondFactor && <form.AppField name="code">{(field) => <field.Text {...CODE} />}</form.AppField>}
        <ProofEnd refused={proof.refused} busy={proof.isPending} label={label} danger={danger} onClose={onClose} />
      </form>
    </Dialog>
  )
}
