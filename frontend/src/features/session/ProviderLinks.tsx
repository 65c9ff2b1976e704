import { useQuery } from '@tanstack/react-query'

import { errorText } from '~/api/errors'
import { BUTTON_LINK } from '~/ui/button-link'

import { providersQuery, startUrl } from './queries'

/** A way to each identity provider of the installation; nothing where it has none. `then`: the page to come back to. */
export function ProviderLinks({ then }: { then: string }) {
  const { data: providers, error } = useQuery(providersQuery)
  if (error)
    return (
      <p role="status" className="mt-4 text-xs text-muted">
        Which identity providers there are is not known: {errorText(error)}
      </p>
    )
  if (!providers || providers.length === 0) return null
  return (
    <section aria-label="Identity providers" className="mt-4 border-t border-line pt-4">
      <ul className="grid gap-2">
        {providers.map((provider) => (
          <li key={provider.id}>
            <a href={startUrl(provider, then)} className={`${BUTTON_LINK} w-full justify-center`}>
              Sign in with {provider.name}
            </a>
          </li>
        ))}
      </ul>
    </section>
  )
}
