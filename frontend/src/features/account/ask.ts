/** What was asked of a person's own account: another password, a second factor, or none. */
export type AccountAsk = 'password' | 'set-up' | 'end'
