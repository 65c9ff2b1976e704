import { type SyntheticEvent, useState } from 'react'

import { errorText } from '~/api/errors'
import { Button } from '~/ui/Button'
import { TextField } from '~/ui/Field'

import { signInByKey } from './queries'

/** For whoever has a key of the installation or of an organisation, and is no person here. */
export function KeySignInForm({ onSignedIn }: { onSignedIn: () => void }) {
  const [apiKey, setApiKey] = useState('')
  const [error, setError] = useState<string | null>(null)
  const [busy, setBusy] = useState(false)

  async function submit(event: SyntheticEvent) {
    event.preventDefault()
    setBusy(true)
    setError(null)
    try {
      await signInByKey(apiKey.trim())
      onSignedIn()
    } catch (failure) {
      setError(errorText(failure))
      setBusy(false)
    }
  }

  return (
    <form onSubmit={(event) => void submit(event)}>
      <TextField
        label="API key"
        type="password"
        autoComplete="off"
        required
        value={apiKey}
        error={error}
        hint={
          <>
            The first key is in <code>secrets/api_key</code> below <code>WEIR_HOME</code>; <code>weir status</code>{' '}
            prints where. The session may do what the key may.
          </>
        }
        onChange={(event) => {
          setApiKey(event.target.value)
        }}
      />
      <Button variant="primary" type="submit" className="w-full" busy={busy}>
        Sign in
      </Button>
    </form>
  )
}
