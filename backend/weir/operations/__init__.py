"""Operations: the work that a request set off, and the dispatcher that starts it."""
