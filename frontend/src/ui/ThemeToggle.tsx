import { Moon, Sun } from 'lucide-react'
import { useState } from 'react'

export function ThemeToggle() {
  const [dark, setDark] = useState(() => document.documentElement.classList.contains('dark'))
  return (
    <button
      type="button"
      aria-pressed={dark}
      aria-label="Dark theme"
      className="inline-flex size-8 items-center justify-center rounded-md hover:bg-raised"
      onClick={() => {
        const next = !dark
        document.documentElement.classList.toggle('dark', next)
        try {
          localStorage.setItem('weir-theme', next ? 'dark' : 'light')
        } catch {
          // The choice then lasts for this page only.
        }
        setDark(next)
      }}
    >
      {dark ? <Moon aria-hidden size={16} /> : <Sun aria-hidden size={16} />}
    </button>
  )
}
