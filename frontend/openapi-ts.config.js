/** What forms send: `scripts/gen` makes Zod schemas of these requests, whose bounds forms check and name. */
export default {
  parser: {
    filters: {
      schemas: {
        include: [
          'BranchCreateRequest',
          'BranchRestoreRequest',
          'BranchSafekeepersRequest',
          'ProjectCreateRequest',
          'ProjectUpdateRequest',
          'RolloutCreateRequest',
          'SessionCreateRequest',
        ],
      },
      operations: { include: [] },
    },
  },
  // Of `zod/mini` a bundle takes the schemas that are used.
  plugins: [{ name: 'zod', compatibilityVersion: 'mini', requests: false, responses: false }],
}
