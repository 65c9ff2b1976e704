import type { AuthProvider, ProviderLink } from '~/api/types'

/**
 * What was asked of a person's own account: another password; a second factor, or none; a link with a provider, or its
 * end.
 */
export type AccountAsk = 'password' | 'set-up' | 'end' | { link: AuthProvider } | { unlink: ProviderLink }
