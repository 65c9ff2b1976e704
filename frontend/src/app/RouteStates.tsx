import { type ErrorComponentProps, Link, useRouter } from '@tanstack/react-router'

import { ApiError, errorText } from '~/api/errors'
import { isMissingCode } from '~/lib/missing-code'
import { Button } from '~/ui/Button'
import { Loading, Notice } from '~/ui/Notice'

export function RoutePending() {
  return <Loading what="page" />
}

const UNLOADED =
  'A part of the console did not come: another version may be served by now, or nobody answers. Load the page again.'

export function RouteError({ error, reset }: ErrorComponentProps) {
  const router = useRouter()
  const missing = error instanceof ApiError && error.status === 404
  const unloaded = isMissingCode(error)
  return (
    <div className="mx-auto max-w-xl p-6">
      <h1 className="mb-3 text-xl font-semibold">{missing ? 'Not found' : 'This page could not be loaded'}</h1>
      <Notice tone="bad">{unloaded ? UNLOADED : errorText(error)}</Notice>
      <div className="mt-4 flex gap-2">
        <Button
          variant="primary"
          onClick={() => {
            // A browser may keep that code did not come: only another load of the page asks for it again.
            if (unloaded) {
              window.location.reload()
              return
            }
            reset()
            void router.invalidate()
          }}
        >
          Try again
        </Button>
        <Link to="/projects" className="inline-flex items-center px-3 text-accent underline">
          All projects
        </Link>
      </div>
    </div>
  )
}

export function RouteNotFound() {
  return (
    <div className="mx-auto max-w-xl p-6">
      <h1 className="mb-3 text-xl font-semibold">No such page</h1>
      <Link to="/projects" className="text-accent underline">
        All projects
      </Link>
    </div>
  )
}
