/** What forms send: `scripts/gen` makes Zod schemas of these requests, whose bounds forms check and name. */
export default {
  parser: {
    filters: {
      schemas: {
        include: [
          'ApiKeyCreateRequest',
          'BranchCreateRequest',
          'BranchRestoreRequest',
          'BranchSafekeepersRequest',
          'DatabaseCreateRequest',
          'InvitationsRequest',
          'MemberAddRequest',
          'PasswordChange',
          'ProjectCreateRequest',
          'ProjectUpdateRequest',
          'RoleCreateRequest',
          'RolloutCreateRequest',
          'SessionCreateRequest',
          'SnapshotRestoreRequest',
          'SnapshotUpdateRequest',
          'TotpCode',
        ],
      },
      operations: { include: [] },
    },
  },
  // Of `zod/mini` a bundle takes the schemas that are used.
  plugins: [{ name: 'zod', compatibilityVersion: 'mini', requests: false, responses: false }],
}
