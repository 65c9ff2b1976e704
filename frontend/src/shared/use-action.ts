import { useMutation, useQueryClient } from '@tanstack/react-query'

import { errorText } from '~/api/errors'
import { useToast } from '~/ui/Toast'

type Options<Result> = {
  /** Said when it worked. */
  done: string
  /** Query keys that the action makes stale. */
  invalidate: readonly (readonly unknown[])[]
  onDone?: (result: Result) => void
  /** Takes a failure that is more than a message; true when there is nothing left to say. */
  takes?: (error: Error) => boolean
  /** The request carries a password or a code: that it is wrong does not mean that nobody is signed in. */
  proves?: boolean
}

/** A mutation that says what it did or why it could not, and refreshes what it changed. */
export function useAction<Input, Result>(
  run: (input: Input) => Promise<Result>,
  { done, invalidate, onDone, takes, proves = false }: Options<Result>,
) {
  const toast = useToast()
  const queryClient = useQueryClient()
  return useMutation({
    mutationFn: run,
    meta: { proves },
    onSuccess: async (result) => {
      toast(done)
      await Promise.all(invalidate.map((queryKey) => queryClient.invalidateQueries({ queryKey })))
      onDone?.(result)
    },
    onError: (error) => {
      if (!takes?.(error)) toast(errorText(error), 'bad')
    },
  })
}
