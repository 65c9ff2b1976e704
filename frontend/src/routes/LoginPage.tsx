import { useQueryClient } from '@tanstack/react-query'
import { useRouter, useSearch } from '@tanstack/react-router'
import { type SyntheticEvent, useState } from 'react'

import { errorText } from '~/api/errors'
import { sessionQuery, signIn } from '~/features/session/queries'
import { Button } from '~/ui/Button'
import { TextField } from '~/ui/Field'

export function LoginPage() {
  const router = useRouter()
  const queryClient = useQueryClient()
  const { then } = useSearch({ from: '/login' })
  const [apiKey, setApiKey] = useState('')
  const [error, setError] = useState<string | null>(null)
  const [busy, setBusy] = useState(false)

  async function submit(event: SyntheticEvent) {
    event.preventDefault()
    setBusy(true)
    setError(null)
    try {
      await signIn(apiKey.trim())
      await queryClient.invalidateQueries({ queryKey: sessionQuery.queryKey })
      router.history.push(then ?? '/projects')
    } catch (failure) {
      setError(errorText(failure))
    } finally {
      setBusy(false)
    }
  }

  return (
    <main className="mx-auto flex min-h-dvh max-w-sm flex-col justify-center p-6">
      <h1 className="mb-6 flex items-center gap-3 text-2xl font-semibold">
        <img src="/weir.svg" alt="" width={36} height={36} />
        Sign in to Weir
      </h1>
      <form onSubmit={(event) => void submit(event)}>
        <TextField
          label="API key"
          type="password"
          autoComplete="current-password"
          required
          value={apiKey}
          error={error}
          hint={
            <>
              The first key is in <code>secrets/api_key</code> below <code>WEIR_HOME</code>; <code>weir status</code>{' '}
              prints where.
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
    </main>
  )
}
