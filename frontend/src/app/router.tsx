import type { QueryClient } from '@tanstack/react-query'
import {
  createRootRouteWithContext,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
  redirect,
} from '@tanstack/react-router'

import { ApiError } from '~/api/errors'
import { parseAudit } from '~/features/audit/search'
import { branchesQuery, branchQuery } from '~/features/branches/queries'
import { endpointsQuery } from '~/features/computes/endpoint-queries'
import { computeQuery } from '~/features/computes/queries'
import { parseComputes } from '~/features/computes/search'
import { fleetQuery, storageQuery } from '~/features/fleet/queries'
import { parseCoverage } from '~/features/fleet/search'
import { projectQuery, projectSearchQuery } from '~/features/projects/queries'
import { rolloutGridQuery, rolloutQuery, rolloutsQuery } from '~/features/rollouts/queries'
import { parseRolloutSearch } from '~/features/rollouts/search'
import { parseSchemaDiff } from '~/features/schemas/search'
import { organizationsQuery, sessionQuery } from '~/features/session/queries'
import { snapshotsQuery } from '~/features/snapshots/queries'
import { accountUsageQuery, projectUsageQuery } from '~/features/usage/queries'
import { parseUsage, USUAL_RANGE } from '~/features/usage/range'

import { AppShell } from './AppShell'
import { RouteError, RouteNotFound, RoutePending } from './RouteStates'

// A route's path, search and loader are in the first chunk; its page is a chunk of its own, asked for beside its data.

type Context = { queryClient: QueryClient }

const root = createRootRouteWithContext<Context>()({ component: Outlet })

const login = createRoute({
  getParentRoute: () => root,
  path: '/login',
  // Only a path of this site may follow, never another site's address.
  validateSearch: (search: Record<string, unknown>): { then?: string } =>
    typeof search.then === 'string' && /^\/(?![/\\])/.test(search.then) ? { then: search.then } : {},
  component: lazyRouteComponent(() => import('~/routes/LoginPage'), 'LoginPage'),
})

const acceptInvitation = createRoute({
  getParentRoute: () => root,
  path: '/accept-invitation',
  component: lazyRouteComponent(() => import('~/routes/AcceptInvitationPage'), 'AcceptInvitationPage'),
})

const app = createRoute({
  getParentRoute: () => root,
  id: 'app',
  component: AppShell,
  beforeLoad: async ({ context, location }) => {
    try {
      await context.queryClient.ensureQueryData(sessionQuery)
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) {
        throw redirect({ to: '/login', search: { then: location.href } })
      }
      throw error
    }
  },
})

const index = createRoute({
  getParentRoute: () => app,
  path: '/',
  beforeLoad: () => {
    throw redirect({ to: '/projects' })
  },
})

const projects = createRoute({
  getParentRoute: () => app,
  path: '/projects',
  loader: ({ context }) => context.queryClient.ensureQueryData(projectSearchQuery('')),
  component: lazyRouteComponent(() => import('~/routes/ProjectsPage'), 'ProjectsPage'),
})

const project = createRoute({
  getParentRoute: () => app,
  path: '/projects/$projectId',
  loader: ({ context: { queryClient }, params: { projectId } }) =>
    Promise.all([
      queryClient.ensureQueryData(projectQuery(projectId)),
      queryClient.ensureQueryData(branchesQuery(projectId)),
      queryClient.ensureQueryData(endpointsQuery(projectId)),
    ]),
  component: lazyRouteComponent(() => import('~/routes/ProjectPage'), 'ProjectPage'),
})

const branch = createRoute({
  getParentRoute: () => app,
  path: '/projects/$projectId/branches/$branchId',
  loader: ({ context: { queryClient }, params: { projectId, branchId } }) =>
    Promise.all([
      queryClient.ensureQueryData(projectQuery(projectId)),
      queryClient.ensureQueryData(branchQuery(projectId, branchId)),
      queryClient.ensureQueryData(branchesQuery(projectId)),
      queryClient.ensureQueryData(endpointsQuery(projectId)),
    ]),
  component: lazyRouteComponent(() => import('~/routes/BranchPage'), 'BranchPage'),
})

const snapshots = createRoute({
  getParentRoute: () => app,
  path: '/projects/$projectId/snapshots',
  loader: ({ context: { queryClient }, params: { projectId } }) =>
    Promise.all([
      queryClient.ensureQueryData(projectQuery(projectId)),
      queryClient.ensureQueryData(branchesQuery(projectId)),
      queryClient.ensureQueryData(snapshotsQuery(projectId)),
    ]),
  component: lazyRouteComponent(() => import('~/routes/SnapshotsPage'), 'SnapshotsPage'),
})

const schemaDiff = createRoute({
  getParentRoute: () => app,
  path: '/projects/$projectId/schemas',
  validateSearch: parseSchemaDiff,
  loader: ({ context: { queryClient }, params: { projectId } }) =>
    Promise.all([
      queryClient.ensureQueryData(projectQuery(projectId)),
      queryClient.ensureQueryData(branchesQuery(projectId)),
    ]),
  component: lazyRouteComponent(() => import('~/routes/SchemaDiffPage'), 'SchemaDiffPage'),
})

const projectUsage = createRoute({
  getParentRoute: () => app,
  path: '/projects/$projectId/usage',
  validateSearch: parseUsage,
  loaderDeps: ({ search }) => search,
  loader: ({ context: { queryClient }, params: { projectId }, deps: { range } }) =>
    Promise.all([
      queryClient.ensureQueryData(projectQuery(projectId)),
      queryClient.ensureQueryData(projectUsageQuery(projectId, range ?? USUAL_RANGE)),
    ]),
  component: lazyRouteComponent(() => import('~/routes/ProjectUsagePage'), 'ProjectUsagePage'),
})

const usage = createRoute({
  getParentRoute: () => app,
  path: '/usage',
  validateSearch: parseUsage,
  loaderDeps: ({ search }) => search,
  loader: ({ context: { queryClient }, deps: { range } }) =>
    queryClient.ensureQueryData(accountUsageQuery(range ?? USUAL_RANGE)),
  component: lazyRouteComponent(() => import('~/routes/UsagePage'), 'UsagePage'),
})

const computes = createRoute({
  getParentRoute: () => app,
  path: '/computes',
  validateSearch: parseComputes,
  component: lazyRouteComponent(() => import('~/routes/ComputesPage'), 'ComputesPage'),
})

const compute = createRoute({
  getParentRoute: () => app,
  path: '/computes/$computeId',
  loader: ({ context, params }) => context.queryClient.ensureQueryData(computeQuery(params.computeId)),
  component: lazyRouteComponent(() => import('~/routes/ComputePage'), 'ComputePage'),
})

const rollouts = createRoute({
  getParentRoute: () => app,
  path: '/rollouts',
  loader: ({ context }) => context.queryClient.ensureInfiniteQueryData(rolloutsQuery),
  component: lazyRouteComponent(() => import('~/routes/RolloutsPage'), 'RolloutsPage'),
})

const rolloutNew = createRoute({
  getParentRoute: () => app,
  path: '/rollouts/new',
  component: lazyRouteComponent(() => import('~/routes/RolloutNewPage'), 'RolloutNewPage'),
})

const rollout = createRoute({
  getParentRoute: () => app,
  path: '/rollouts/$rolloutId',
  validateSearch: parseRolloutSearch,
  loader: ({ context: { queryClient }, params: { rolloutId } }) =>
    Promise.all([
      queryClient.ensureQueryData(rolloutQuery(rolloutId)),
      queryClient.ensureQueryData(rolloutGridQuery(rolloutId)),
    ]),
  component: lazyRouteComponent(() => import('~/routes/RolloutPage'), 'RolloutPage'),
})

const fleet = createRoute({
  getParentRoute: () => app,
  path: '/fleet',
  loader: ({ context: { queryClient } }) =>
    Promise.all([queryClient.ensureQueryData(fleetQuery), queryClient.ensureQueryData(storageQuery)]),
  component: lazyRouteComponent(() => import('~/routes/FleetPage'), 'FleetPage'),
})

const coverage = createRoute({
  getParentRoute: () => app,
  path: '/fleet/pushdown',
  validateSearch: parseCoverage,
  component: lazyRouteComponent(() => import('~/routes/CoveragePage'), 'CoveragePage'),
})

const organization = createRoute({
  getParentRoute: () => app,
  path: '/organisation',
  loader: ({ context }) => context.queryClient.ensureQueryData(organizationsQuery),
  component: lazyRouteComponent(() => import('~/routes/OrganizationPage'), 'OrganizationPage'),
})

// Where keys were a page of their own, for links that there are.
const keys = createRoute({
  getParentRoute: () => app,
  path: '/keys',
  beforeLoad: () => {
    throw redirect({ to: '/organisation' })
  },
})

const account = createRoute({
  getParentRoute: () => app,
  path: '/account',
  loader: ({ context }) => context.queryClient.ensureQueryData(organizationsQuery),
  component: lazyRouteComponent(() => import('~/routes/AccountPage'), 'AccountPage'),
})

const audit = createRoute({
  getParentRoute: () => app,
  path: '/audit',
  validateSearch: parseAudit,
  component: lazyRouteComponent(() => import('~/routes/AuditPage'), 'AuditPage'),
})

const routeTree = root.addChildren([
  login,
  acceptInvitation,
  app.addChildren([
    index,
    projects,
    project,
    branch,
    snapshots,
    schemaDiff,
    projectUsage,
    usage,
    computes,
    compute,
    rollouts,
    rolloutNew,
    rollout,
    fleet,
    coverage,
    organization,
    keys,
    account,
    audit,
  ]),
])

export function createAppRouter(queryClient: QueryClient) {
  return createRouter({
    routeTree,
    context: { queryClient },
    defaultPreload: 'intent',
    defaultPendingComponent: RoutePending,
    // What comes sooner is drawn without a sign of waiting, and a sign once drawn does not merely flicker.
    defaultPendingMs: 300,
    defaultPendingMinMs: 300,
    defaultErrorComponent: RouteError,
    defaultNotFoundComponent: RouteNotFound,
    scrollRestoration: true,
  })
}

declare module '@tanstack/react-router' {
  interface Register {
    router: ReturnType<typeof createAppRouter>
  }
}
