import { useEffect, useState } from 'react'

/** A value once it has stood still for a moment, so that typing or dragging does not ask at every step. */
export function useSettled<Value>(value: Value, forMs = 300): Value {
  const [settled, setSettled] = useState(value)
  const key = JSON.stringify(value)
  useEffect(() => {
    const timer = setTimeout(() => {
      setSettled(JSON.parse(key) as Value)
    }, forMs)
    return () => {
      clearTimeout(timer)
    }
  }, [key, forMs])
  return settled
}
