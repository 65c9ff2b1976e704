export type Share = { key: string; label: string; count: number; color: string }

/** How a whole divides, as one bar; the same in words for those who don't see it. */
export function StateBar({ label, shares }: { label: string; shares: Share[] }) {
  const total = shares.reduce((sum, share) => sum + share.count, 0)
  const words = shares.filter((share) => share.count > 0).map((share) => `${String(share.count)} ${share.label}`)
  return (
    <div
      role="img"
      aria-label={`${label}: ${words.join(', ') || 'nobody'}`}
      className="flex h-2 w-full gap-px overflow-hidden rounded-full bg-raised"
    >
      {shares.map((share) =>
        share.count > 0 ? (
          <span
            key={share.key}
            title={`${String(share.count)} ${share.label}`}
            className="h-full min-w-0.5"
            style={{ width: `${String((100 * share.count) / total)}%`, background: `var(${share.color})` }}
          />
        ) : null,
      )}
    </div>
  )
}
