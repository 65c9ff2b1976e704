import '@testing-library/jest-dom/vitest'

import { configure } from '@testing-library/react'

// What is waited for comes, on a busy machine later than after the second that is usual.
configure({ asyncUtilTimeout: 5_000 })
