import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useRouter } from '@tanstack/react-router'
import { type SyntheticEvent, useState } from 'react'

import { errorText } from '~/api/errors'
import { acceptInvitation, invitationToken } from '~/features/session/invitation'
import { sessionQuery } from '~/features/session/queries'
import { Button } from '~/ui/Button'
import { TextField } from '~/ui/Field'

/** For whoever has a link: the person who is signed in accepts, anybody else makes an account or signs in first. */
export function AcceptInvitationPage() {
  const router = useRouter()
  const queryClient = useQueryClient()
  const [token] = useState(() => invitationToken(window.location.hash))
  const session = useQuery(sessionQuery)
  const [name, setName] = useState('')
  const [password, setPassword] = useState('')
  const [error, setError] = useState<string | null>(null)
  const [busy, setBusy] = useState(false)
  const email = session.data?.user.email

  async function submit(event: SyntheticEvent) {
    event.preventDefault()
    if (token === null) {
      return
    }
    setBusy(true)
    setError(null)
    try {
      await acceptInvitation(token, email === undefined ? { name: name.trim(), password } : undefined)
      await queryClient.invalidateQueries()
      router.history.push('/projects')
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
        Accept an invitation
      </h1>
      {token === null ? (
        <p>This address names no invitation. Open the link as it was given to you, to its last character.</p>
      ) : (
        <form onSubmit={(event) => void submit(event)}>
          {email === undefined ? (
            <>
              <TextField
                label="Name"
                autoComplete="name"
                maxLength={256}
                value={name}
                onChange={(event) => {
                  setName(event.target.value)
                }}
              />
              <TextField
                label="Password"
                type="password"
                autoComplete="new-password"
                required
                minLength={12}
                maxLength={200}
                value={password}
                hint="12 characters or more. It is for the email that was invited."
                onChange={(event) => {
                  setPassword(event.target.value)
                }}
              />
            </>
          ) : (
            <p className="mb-4">You are signed in as {email}.</p>
          )}
          {error !== null && (
            <p role="alert" className="mb-3 text-sm text-bad">
              {error}
            </p>
          )}
          <Button variant="primary" type="submit" className="w-full" busy={busy} disabled={session.isPending}>
            {email === undefined ? 'Make an account and accept' : 'Accept'}
          </Button>
          {email === undefined && (
            <p className="mt-4 text-sm">
              With an account already,{' '}
              <Link to="/login" search={{ then: '/accept-invitation' }} className="underline">
                sign in
              </Link>{' '}
              first.
            </p>
          )}
        </form>
      )}
    </main>
  )
}
