import { Link } from '@tanstack/react-router'

/** Of a rollout, by its name or in a word; a compute that is opened with it. */
export function RolloutLink({ id, compute, children }: { id: string; compute?: string; children: string }) {
  return (
    <Link
      to="/rollouts/$rolloutId"
      params={{ rolloutId: id }}
      search={compute ? { compute } : {}}
      className="font-medium text-accent underline"
    >
      {children}
    </Link>
  )
}
