import type { QueryClient } from '@tanstack/react-query'
import { createRootRouteWithContext, createRoute, createRouter, Outlet, redirect } from '@tanstack/react-router'

import { ApiError } from '~/api/errors'
import { branchesQuery, branchQuery } from '~/features/branches/queries'
import { endpointsQuery } from '~/features/computes/endpoint-queries'
import { computeQuery } from '~/features/computes/queries'
import { fleetQuery, storageQuery } from '~/features/fleet/queries'
import { projectQuery, projectSearchQuery } from '~/features/projects/queries'
import { rolloutGridQuery, rolloutQuery, rolloutsQuery } from '~/features/rollouts/queries'
import { sessionQuery } from '~/features/session/queries'
import { BranchPage } from '~/routes/BranchPage'
import { ComputePage } from '~/routes/ComputePage'
import { ComputesPage, parseComputes } from '~/routes/ComputesPage'
import { CoveragePage, parseCoverage } from '~/routes/CoveragePage'
import { FleetPage } from '~/routes/FleetPage'
import { LoginPage } from '~/routes/LoginPage'
import { ProjectPage } from '~/routes/ProjectPage'
import { ProjectsPage } from '~/routes/ProjectsPage'
import { RolloutNewPage } from '~/routes/RolloutNewPage'
import { parseRolloutSearch, RolloutPage } from '~/routes/RolloutPage'
import { RolloutsPage } from '~/routes/RolloutsPage'

import { AppShell } from './AppShell'
import { RouteError, RouteNotFound, RoutePending } from './RouteStates'

type Context = { queryClient: QueryClient }

const root = createRootRouteWithContext<Context>()({ component: Outlet })

const login = createRoute({
  getParentRoute: () => root,
  path: '/login',
  // Only a path of this site may follow, never another site's address.
  validateSearch: (search: Record<string, unknown>): { then?: string } =>
    typeof search.then === 'string' && /^\/(?!\/)/.test(search.then) ? { then: search.then } : {},
  component: LoginPage,
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
  component: ProjectsPage,
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
  component: ProjectPage,
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
  component: BranchPage,
})

const computes = createRoute({
  getParentRoute: () => app,
  path: '/computes',
  validateSearch: parseComputes,
  component: ComputesPage,
})

const compute = createRoute({
  getParentRoute: () => app,
  path: '/computes/$computeId',
  loader: ({ context, params }) => context.queryClient.ensureQueryData(computeQuery(params.computeId)),
  component: ComputePage,
})

const rollouts = createRoute({
  getParentRoute: () => app,
  path: '/rollouts',
  loader: ({ context }) => context.queryClient.ensureInfiniteQueryData(rolloutsQuery),
  component: RolloutsPage,
})

const rolloutNew = createRoute({
  getParentRoute: () => app,
  path: '/rollouts/new',
  component: RolloutNewPage,
})

const rollout = createRoute({
  getParentRoute: () => app,
  path: '/rollouts/$rolloutId',
  validateSearch: parseRolloutSearch,
  loader: ({ context: { queryClient }, params: { rolloutId } }) =>
    Promise.all([queryClient.ensureQueryData(rolloutQuery(rolloutId)), queryClient.ensureQueryData(rolloutGridQuery(rolloutId))]),
  component: RolloutPage,
})

const fleet = createRoute({
  getParentRoute: () => app,
  path: '/fleet',
  loader: ({ context: { queryClient } }) =>
    Promise.all([queryClient.ensureQueryData(fleetQuery), queryClient.ensureQueryData(storageQuery)]),
  component: FleetPage,
})

const coverage = createRoute({
  getParentRoute: () => app,
  path: '/fleet/pushdown',
  validateSearch: parseCoverage,
  component: CoveragePage,
})

const routeTree = root.addChildren([
  login,
  app.addChildren([index, projects, project, branch, computes, compute, rollouts, rolloutNew, rollout, fleet, coverage]),
])

export function createAppRouter(queryClient: QueryClient) {
  return createRouter({
    routeTree,
    context: { queryClient },
    defaultPreload: 'intent',
    defaultPendingComponent: RoutePending,
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
