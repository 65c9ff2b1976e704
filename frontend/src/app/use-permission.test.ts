import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import type * as Router from '@tanstack/react-router'
import { cleanup, renderHook } from '@testing-library/react'
import { createElement, type ReactNode } from 'react'
import { afterEach, expect, it, vi } from 'vitest'

import type { SessionUser } from '~/api/types'
import { projectQuery } from '~/features/projects/queries'
import { sessionQuery } from '~/features/session/queries'

import { usePermission } from './use-permission'

const { params } = vi.hoisted(() => ({ params: { current: {} as { projectId?: string } } }))
vi.mock('@tanstack/react-router', async (original) => ({
  ...(await original<typeof Router>()),
  useParams: () => params.current,
}))
afterEach(cleanup)

const user: SessionUser = {
  id: 'u-1',
  name: 'ada@example.org',
  email: 'ada@example.org',
  operator: false,
  organization_id: 'o-1',
  role: 'viewer',
  person: { name: 'Ada', has_password: true, second_factor: false },
  project_id: null,
  read_only: false,
}

function permission(projectId?: string) {
  params.current = projectId === undefined ? {} : { projectId }
  const queryClient = new QueryClient({ defaultOptions: { queries: { staleTime: Infinity } } })
  queryClient.setQueryData(sessionQuery.queryKey, { user })
  for (const [id, org] of [
    ['p-mine', 'o-1'],
    ['p-other', 'o-2'],
  ] as const)
    queryClient.setQueryData(projectQuery(id).queryKey, { project: { id, org_id: org } } as never)
  const wrapper = ({ children }: { children: ReactNode }) =>
    createElement(QueryClientProvider, { client: queryClient }, children)
  return renderHook(() => usePermission(), { wrapper }).result.current
}

it('goes by the role in the organisation that the console acts in', () => {
  expect(permission()('works-in-all')).toContain('You are a viewer here.')
  expect(permission('p-mine')('works')).toContain('You are a viewer here.')
})

it('leaves the project of another organisation to the API, and nothing else of that page', () => {
  expect(permission('p-other')('works')).toBeNull()
  expect(permission('p-other')('decides-on-all')).toContain('You are a viewer here.')
})
