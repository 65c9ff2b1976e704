import jsxA11y from 'eslint-plugin-jsx-a11y'
import reactHooks from 'eslint-plugin-react-hooks'
import tseslint from 'typescript-eslint'

export default tseslint.config(
  { ignores: ['dist', 'src/api/generated', 'public'] },
  ...tseslint.configs.strict,
  jsxA11y.flatConfigs.recommended,
  reactHooks.configs.flat['recommended-latest'] ?? reactHooks.configs['recommended-latest'],
  {
    rules: {
      'no-restricted-globals': [
        'error',
        { name: 'fetch', message: 'use the typed client in src/api/client.ts' },
      ],
      '@typescript-eslint/no-non-null-assertion': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
    },
  },
  {
    // The lowest layer knows neither the router nor the API.
    files: ['src/ui/**', 'src/lib/**'],
    rules: {
      'no-restricted-imports': [
        'error',
        {
          patterns: [
            { group: ['@tanstack/*', '!@tanstack/react-virtual', '~/api/*', '~/app/*', '~/routes/*', '~/features/*', '~/shared/*'], message: 'ui/ and lib/ stand alone' },
          ],
        },
      ],
    },
  },
)
