import { useQueryClient } from '@tanstack/react-query'
import { Link, Outlet, useNavigate } from '@tanstack/react-router'
import { Activity, ChartColumn, Database, Gauge, KeyRound, LogOut, ScrollText, Waves } from 'lucide-react'

import { signOut } from '~/features/session/queries'
import { ThemeToggle } from '~/ui/ThemeToggle'

const SECTIONS = [
  { to: '/projects', label: 'Projects', icon: Database },
  { to: '/computes', label: 'Computes', icon: Gauge },
  { to: '/rollouts', label: 'Rollouts', icon: Waves },
  { to: '/fleet', label: 'Fleet', icon: Activity },
  { to: '/usage', label: 'Usage', icon: ChartColumn },
  { to: '/keys', label: 'Keys', icon: KeyRound },
  { to: '/audit', label: 'Audit', icon: ScrollText },
] as const

export function AppShell() {
  const navigate = useNavigate()
  const queryClient = useQueryClient()
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
            <ThemeToggle />
            <button
              type="button"
              aria-label="Sign out"
              className="inline-flex size-8 items-center justify-center rounded-md hover:bg-raised"
              onClick={() => {
                void signOut().finally(() => {
                  queryClient.clear()
                  void navigate({ to: '/login' })
                })
              }}
            >
              <LogOut aria-hidden size={16} />
            </button>
          </div>
        </div>
      </header>
      <main id="content" tabIndex={-1} className="mx-auto max-w-7xl px-4 py-6 outline-none">
        <Outlet />
      </main>
    </div>
  )
}
