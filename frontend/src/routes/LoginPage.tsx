import { useQueryClient } from '@tanstack/react-query'
import { useRouter, useSearch } from '@tanstack/react-router'
import { useState } from 'react'

import { FirstPerson } from '~/features/session/FirstPerson'
import { KeySignInForm } from '~/features/session/KeySignInForm'
import { ProviderLinks } from '~/features/session/ProviderLinks'
import { SignInForm } from '~/features/session/SignInForm'
import { Button } from '~/ui/Button'

export function LoginPage() {
  const router = useRouter()
  const queryClient = useQueryClient()
  const { then = '/projects' } = useSearch({ from: '/login' })
  const [byKey, setByKey] = useState(false)

  const signedIn = () => {
    // Another person may have used the console before, in this browser.
    queryClient.clear()
    router.history.push(then)
  }

  return (
    <main className="mx-auto flex min-h-dvh max-w-sm flex-col justify-center p-6">
      <h1 className="mb-6 flex items-center gap-3 text-2xl font-semibold">
        <img src="/weir.svg" alt="" width={36} height={36} />
        Sign in to Weir
      </h1>
      {byKey ? <KeySignInForm onSignedIn={signedIn} /> : <SignInForm onSignedIn={signedIn} />}
      <Button
        variant="quiet"
        className="mt-2 w-full"
        onClick={() => {
          setByKey(!byKey)
        }}
      >
        {byKey ? 'Use email and password' : 'Use an API key'}
      </Button>
      <ProviderLinks then={then} />
      {!byKey && (
        <details className="mt-4 text-sm text-muted">
          <summary className="cursor-pointer rounded-sm">No account, or locked out?</summary>
          <div className="mt-2 grid gap-2">
            <p>
              An admin of your organisation invites you by a link. Whoever runs the installation sets another password
              by <code>weir-admin user password EMAIL</code>, and ends a second factor that is lost by{' '}
              <code>weir-admin user end-second-factor EMAIL</code>.
            </p>
            <div>
              <FirstPerson />
            </div>
          </div>
        </details>
      )}
    </main>
  )
}
