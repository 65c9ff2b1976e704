import { type SyntheticEvent, useEffect, useRef, useState } from 'react'

import { useSecondsLeft } from '~/shared/use-seconds-left'
import { Button } from '~/ui/Button'
import { TextField } from '~/ui/Field'
import { Notice } from '~/ui/Notice'

import { signIn } from './queries'
import { type SignInRefusal, signInRefusal, type Step } from './sign-in-refusal'

/** Email and password, then a code where the person has a second factor. */
export function SignInForm({ onSignedIn }: { onSignedIn: () => void }) {
  const [email, setEmail] = useState('')
  const [password, setPassword] = useState('')
  const [code, setCode] = useState('')
  const [step, setStep] = useState<Step>('password')
  const [refused, setRefused] = useState<SignInRefusal | null>(null)
  const [busy, setBusy] = useState(false)
  const left = useSecondsLeft(refused?.wait ?? null)

  async function submit(event: SyntheticEvent) {
    event.preventDefault()
    setBusy(true)
    setRefused(null)
    try {
      await signIn({ email: email.trim(), password, code: step === 'code' ? code.trim() : '' })
      onSignedIn()
    } catch (error) {
      const why = signInRefusal(error, step, Date.now())
      setRefused(why)
      setStep(why.next)
      if (step === 'code') setCode('')
      setBusy(false)
    }
  }

  return (
    <form onSubmit={(event) => void submit(event)}>
      {step === 'password' ? (
        <>
          <TextField
            label="Email"
            type="email"
            autoComplete="username"
            required
            value={email}
            onChange={(event) => {
              setEmail(event.target.value)
            }}
          />
          <TextField
            label="Password"
            type="password"
            autoComplete="current-password"
            required
            value={password}
            onChange={(event) => {
              setPassword(event.target.value)
            }}
          />
        </>
      ) : (
        <CodeFields
          email={email.trim()}
          code={code}
          onCode={setCode}
          onBack={() => {
            setStep('password')
            setPassword('')
            setCode('')
            setRefused(null)
          }}
        />
      )}
      {refused?.text && <Refused refused={refused} left={left} />}
      <Button
        variant="primary"
        type="submit"
        className="w-full"
        busy={busy}
        disabledReason={left > 0 ? `Try again in ${String(left)} s.` : null}
      >
        {left > 0 ? `Sign in, in ${String(left)} s` : 'Sign in'}
      </Button>
    </form>
  )
}

/** The code of an authenticator, or one that stands in for it. */
function CodeFields(props: { email: string; code: string; onCode: (code: string) => void; onBack: () => void }) {
  const [recovery, setRecovery] = useState(false)
  const box = useRef<HTMLDivElement>(null)
  // The form has changed under the person's hands: the keyboard goes on where the question is.
  useEffect(() => {
    box.current?.querySelector('input')?.focus()
  }, [recovery])
  return (
    <div ref={box}>
      <p className="mb-3 text-sm text-muted">
        The password of <strong className="font-medium text-text">{props.email}</strong> is right. Signing in takes a
        second step.
      </p>
      <TextField
        key={String(recovery)}
        label={recovery ? 'Recovery code' : 'Code'}
        autoComplete="one-time-code"
        inputMode={recovery ? 'text' : 'numeric'}
        spellCheck={false}
        required
        maxLength={64}
        className="font-mono"
        value={props.code}
        hint={recovery ? 'One of those you kept. Each counts once.' : 'Six digits, from your authenticator.'}
        onChange={(event) => {
          props.onCode(event.target.value)
        }}
      />
      <div className="mb-3 flex flex-wrap justify-between gap-2">
        <Button
          variant="quiet"
          onClick={() => {
            props.onCode('')
            setRecovery(!recovery)
          }}
        >
          {recovery ? 'Use the authenticator' : 'Use a recovery code'}
        </Button>
        <Button variant="quiet" onClick={props.onBack}>
          Not you?
        </Button>
      </div>
    </div>
  )
}

/** Said once to screen readers, however long the seconds are counted down on the screen. */
function Refused({ refused, left }: { refused: SignInRefusal; left: number }) {
  const slowed = refused.wait !== null
  return (
    <div className="mb-3">
      <Notice tone={slowed ? 'warn' : 'bad'} role="alert">
        {refused.text}
        {slowed && (
          <>
            {' '}
            <span className="sr-only">The button works again as soon as another attempt is looked at.</span>
            <span aria-hidden className="tabular font-medium">
              {left > 0 ? `Try again in ${String(left)} s.` : 'You can try again now.'}
            </span>
          </>
        )}
      </Notice>
    </div>
  )
}
