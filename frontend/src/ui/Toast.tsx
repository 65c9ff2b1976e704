import { Toast } from 'radix-ui'
import { createContext, type ReactNode, useCallback, useContext, useState } from 'react'

type Message = { id: number; title: string; tone: 'good' | 'bad' }
type Show = (title: string, tone?: Message['tone']) => void

const Context = createContext<Show>(() => {
  throw new Error('useToast outside ToastProvider')
})

const TONES: Record<Message['tone'], string> = {
  good: 'border-line bg-panel text-text',
  bad: 'border-bad bg-bad-soft text-bad',
}

let nextId = 0

/** Short word on what an action did; announced to screen readers, dismissed by itself or by swipe or key. */
export function ToastProvider({ children }: { children: ReactNode }) {
  const [messages, setMessages] = useState<Message[]>([])
  const show = useCallback<Show>((title, tone = 'good') => {
    nextId += 1
    const id = nextId
    setMessages((current) => [...current, { id, title, tone }])
  }, [])
  return (
    <Context.Provider value={show}>
      <Toast.Provider duration={6000} swipeDirection="right">
        {children}
        {messages.map((message) => (
          <Toast.Root
            key={message.id}
            type={message.tone === 'bad' ? 'foreground' : 'background'}
            className={`rounded-md border px-4 py-3 text-sm shadow-lg ${TONES[message.tone]}`}
            onOpenChange={(open) => {
              if (!open) setMessages((current) => current.filter((other) => other.id !== message.id))
            }}
          >
            <Toast.Title>{message.title}</Toast.Title>
          </Toast.Root>
        ))}
        <Toast.Viewport className="fixed right-4 bottom-4 z-60 flex w-[min(24rem,calc(100vw-2rem))] flex-col gap-2 outline-none" />
      </Toast.Provider>
    </Context.Provider>
  )
}

export function useToast(): Show {
  return useContext(Context)
}
