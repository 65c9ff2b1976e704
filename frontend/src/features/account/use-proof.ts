import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'

import { ApiError } from '~/api/errors'
import { sessionQuery } from '~/features/session/queries'
import { type SignInRefusal, signInRefusal } from '~/features/session/sign-in-refusal'
import { useAction } from '~/shared/use-action'

const WRONG = 'The password or the code is not right. A code counts once: wait for the next one if you used this one.'

/** Why a request that carries a password or a code was refused, in words. `now`: ms, as `Date.now`. */
export function proofRefusal(error: unknown, now: number): SignInRefusal {
  const why = signInRefusal(error, 'password', now)
  if (error instanceof ApiError && error.code === 'CODE_REQUIRED')
    return { ...why, text: 'The code of your second factor is missing.' }
  return error instanceof ApiError && error.status === 401 ? { ...why, text: WRONG } : why
}

type Options<Result> = {
  done: string
  invalidate?: readonly (readonly unknown[])[]
  onDone: (result: Result) => void
}

/** An action for which the person proves themselves again; a refusal is for the form to show, not for a message that goes. */
export function useProof<Input, Result>(
  run: (input: Input) => Promise<Result>,
  { done, invalidate = [], onDone }: Options<Result>,
) {
  const queryClient = useQueryClient()
  const [refused, setRefused] = useState<SignInRefusal | null>(null)
  const action = useAction(run, {
    done,
    invalidate: [sessionQuery.queryKey, ...invalidate],
    onDone,
    proves: true,
    takes: (error) => {
      setRefused(proofRefusal(error, Date.now()))
      // The session itself may have ended: then asking who is signed in ends in 401, which leads to the page for signing in.
      if (error instanceof ApiError && error.status === 401)
        void queryClient.invalidateQueries({ queryKey: sessionQuery.queryKey })
      return true
    },
  })
  return {
    refused,
    isPending: action.isPending,
    mutate: (input: Input) => {
      setRefused(null)
      action.mutate(input)
    },
  }
}
