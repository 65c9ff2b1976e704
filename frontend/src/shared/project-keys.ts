/** What the cache calls projects. All that belongs to a project has a key below the project's, so that one
 * invalidation makes the whole project stale, whichever feature asked for a part of it. */
export const projectKeys = { all: ['projects'] as const, one: (id: string) => ['projects', id] as const }
