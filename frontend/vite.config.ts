import tailwindcss from '@tailwindcss/vite'
import react from '@vitejs/plugin-react'
import { defineConfig } from 'vitest/config'

// The console is served by the API from one origin; in development the API's routes are proxied to it.
const api = process.env.WEIR_API_URL ?? 'http://127.0.0.1:7400'

/** What every page needs and no change to the console changes, so that a browser keeps it over deployments. */
const FRAMEWORK = {
  name: 'framework',
  test: /node_modules\/(react|react-dom|scheduler|use-sync-external-store|@tanstack\/(history|(react-)?(router|query|store)(-core)?))\//,
}

export default defineConfig({
  plugins: [react(), tailwindcss()],
  resolve: { alias: { '~': new URL('./src', import.meta.url).pathname } },
  server: { host: '127.0.0.1', port: 7405, proxy: { '/api': api }, fs: { allow: ['.', '../openapi'] } },
  build: { sourcemap: true, rolldownOptions: { output: { codeSplitting: { groups: [FRAMEWORK] } } } },
  test: {
    environment: 'jsdom',
    setupFiles: ['src/test-setup.ts'],
    include: ['src/**/*.test.{ts,tsx}'],
    testTimeout: 20_000,
  },
})
