/**
 * Which part of the console may import which; `npm run lint` checks it.
 *
 *   main → app → routes → features → shared → ui, api → lib
 *
 * `ui` and `lib` are free of the API and of the router. A feature imports features before it in FEATURES, never a later one.
 */
const FEATURES = [
  'session',
  'account',
  'members',
  'operations',
  'computes',
  'durability',
  'safekeepers',
  'databases',
  'branches',
  'snapshots',
  'schemas',
  'projects',
  'fleet',
  'rollouts',
  'keys',
  'quotas',
  'usage',
  'audit',
]

/** Each layer, and those above it, which it must not know. */
const LAYERS = { app: [], routes: ['app'], features: ['app', 'routes'], shared: ['app', 'routes', 'features'] }

const folder = (names) => `^src/(${names.join('|')})/`

const layers = Object.entries(LAYERS).map(([layer, above]) => ({
  name: `${layer}-knows-nothing-above-it`,
  comment: 'Dependencies point one way: main → app → routes → features → shared → ui, api → lib.',
  severity: 'error',
  from: { path: folder([layer]) },
  to: { path: above.length > 0 ? `${folder(above)}|^src/main` : '^src/main' },
}))

const features = FEATURES.slice(0, -1).map((feature, index) => ({
  name: `${feature}-knows-no-later-feature`,
  comment: `Features import each other in one direction: ${FEATURES.join(' → ')}, later ones the earlier.`,
  severity: 'error',
  from: { path: `^src/features/${feature}/` },
  to: { path: `^src/features/(${FEATURES.slice(index + 1).join('|')})/` },
}))

/** @type {import('dependency-cruiser').IConfiguration} */
export default {
  forbidden: [
    { name: 'no-circles', severity: 'error', from: {}, to: { circular: true } },
    { name: 'no-unresolved', severity: 'error', from: {}, to: { couldNotResolve: true } },
    {
      name: 'listed-features-only',
      comment: 'A new feature gets its place in FEATURES of .dependency-cruiser.js.',
      severity: 'error',
      from: {},
      to: { path: '^src/features/', pathNot: `^src/features/(${FEATURES.join('|')})/` },
    },
    ...layers,
    ...features,
    {
      name: 'pages-load-lazily',
      comment: 'A page is a chunk of its own: the router imports it by `import()`, and nobody else does.',
      severity: 'error',
      from: {},
      to: { path: '^src/routes/', dynamic: false },
    },
    {
      name: 'ui-and-lib-stand-alone',
      severity: 'error',
      from: { path: '^src/(ui|lib)/' },
      to: {
        path: `${folder(['app', 'routes', 'features', 'shared', 'api'])}|^src/main|node_modules/(@tanstack/(?!react-(virtual|table))|openapi-)`,
      },
    },
    {
      name: 'lib-draws-nothing',
      severity: 'error',
      from: { path: '^src/lib/' },
      to: { path: '^src/ui/|node_modules/react' },
    },
    {
      name: 'api-knows-no-feature',
      severity: 'error',
      from: { path: '^src/api/' },
      to: { path: `${folder(['app', 'routes', 'features', 'shared', 'ui'])}|^src/main` },
    },
    {
      name: 'tests-are-imported-by-nobody',
      severity: 'error',
      from: {},
      to: { path: '[.]test[.]tsx?$' },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.app.json' },
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['import', 'types', 'default'] },
  },
}
