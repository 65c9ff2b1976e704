import { useQueryClient } from '@tanstack/react-query'
import { Link, Outlet, useNavigate } from '@tanstack/react-router'
import {
  Activity,
  Building2,
  ChartColumn,
  CircleUser,
  Database,
  Gauge,
  LogOut,
  ScrollText,
  Waves,
} from 'lucide-react'

import { OrganizationSwitch } from '~/features/session/OrganizationSwitch'
import { signOut } from '~/features/session/queries'
import { useSessionUser } from '~/features/session/use-session'
import { Permission } from '~/ui/permission'
import { ThemeToggle } from '~/ui/ThemeToggle'

import { usePermission } from './use-permission'

const SECTIONS = [
  { to: '/projects', label: 'Projects', icon: Database },
  { to: '/computes', label: 'Computes', icon: Gauge },
  { to: '/rollouts', label: 'Rollouts', icon: Waves },
  { to: '/fleet', label: 'Fleet', icon: Activity },
  { to: '/usage', label: 'Usage', icon: ChartColumn },
  { to: '/organisation', label: 'Organisation', icon: Building2 },
  { to: '/audit', label: 'Audit', icon: ScrollText },
] as const

export function AppShell() {
  const navigate = useNavigate()
  const queryClient = useQueryClient()
  const user = useSessionUser()
  const permission = usePermission()
  return (
    <div className="min-h-dvh">
      <a href="#content" className="sr-only focus:not-sr-only focus:absolute focus:z-50 focus:bg-panel focus:p-2">
        Skip to content
      </a>
      <header className="border-b border-line bg-panel">
        <div className="mx-auto flex max-w-7xl flex-wrap items-center gap-x-6 gap-y-1 px-4 py-2">
          <Link to="/projects" className="flex items-center gap-2 font-semibold">
            <img src="/weir.svg" alt="" width={24} height={24} />
            Weir
          </Link>
          <nav aria-label="Main" className="order-last flex w-full gap-1 overflow-x-auto sm:order-none sm:w-auto">
            {SECTIONS.map(({ to, label, icon: Icon }) => (
              <Link
                key={to}
                to={to}
                className="flex items-center gap-1.5 rounded-md px-2.5 py-1.5 text-sm text-muted hover:bg-raised hover:text-text"
                activeProps={{ className: 'bg-accent-soft !text-accent font-medium', 'aria-current': 'page' }}
              >
                <Icon aria-hidden size={15} className="hidden sm:block" />
                {label}
              </Link>
            ))}
          </nav>
          <div className="ml-auto flex items-center gap-1">
            <OrganizationSwitch />
            <Link
              to="/account"
              aria-label={`Your account, ${user.name}`}
              title={user.name}
              className="inline-flex size-8 items-center justify-center rounded-md hover:bg-raised"
              activeProps={{ className: 'bg-accent-soft text-accent', 'aria-current': 'page' }}
            >
              <CircleUser aria-hidden size={16} />
            </Link>
            <ThemeToggle />
            <button
              type="button"
              aria-label="Sign out"
              className="inline-flex size-8 items-center justify-center rounded-md hover:bg-raised"
              onClick={() => {
                void signOut()
                  .finally(() => navigate({ to: '/login' }))
                  .finally(() => {
                    queryClient.clear()
                  })
              }}
            >
              <LogOut aria-hidden size={16} />
            </button>
          </div>
        </div>
      </header>
      <main id="content" tabIndex={-1} className="mx-auto max-w-7xl px-4 py-6 outline-none">
        <Permission value={permission}>
          <Outlet />
        </Permission>
      </main>
    </div>
  )
}
