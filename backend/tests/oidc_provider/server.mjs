// An identity provider on loopback: `node server.mjs CONFIG.json`. It is oidc-provider, but for two things that tests
// need: whoever asks signs in as the account that the header `x-account` names, and its keys are those of the file.
//
// {"port": N, "accounts": FILE of {ID: claims}, "clients": [metadata of OpenID Connect Registration],
//  "jwks": {"keys": [...]}, "conform": boolean}
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'

import * as oidc from 'oidc-provider'

const config = JSON.parse(readFileSync(process.argv[2], 'utf8'))
const issuer = `http://127.0.0.1:${config.port}`
const Provider = oidc.Provider ?? oidc.default

const provider = new Provider(issuer, {
  clients: config.clients,
  jwks: config.jwks,
  cookies: { keys: ['of-a-test'] },
  claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['name'] },
  // Some providers put claims into the id_token; those that conform tell them by another request.
  conformIdTokenClaims: config.conform,
  pkce: { required: () => true },
  features: {
    devInteractions: { enabled: false },
    backchannelLogout: { enabled: true },
    rpInitiatedLogout: {
      enabled: true,
      // Without asking the person, who is a test.
      logoutSource: (ctx, form) => {
        ctx.body = form
      },
    },
  },
  enabledJWA: { idTokenSigningAlgValues: ['RS256', 'ES256', 'EdDSA'] },
  // Requests to loopback are refused otherwise: the API under test is there.
  fetch: (url, options) => fetch(url, { ...options, dispatcher: undefined }),
  findAccount: (ctx, id) => {
    const claims = JSON.parse(readFileSync(config.accounts, 'utf8'))[id]
    return claims && { accountId: id, claims: () => ({ sub: id, ...claims }) }
  },
  loadExistingGrant: async (ctx) => {
    const grant = new ctx.oidc.provider.Grant({
      accountId: ctx.oidc.session.accountId,
      clientId: ctx.oidc.client.clientId,
    })
    grant.addOIDCScope('openid email profile')
    await grant.save()
    return grant
  },
  interactions: { url: (ctx, interaction) => `/interaction/${interaction.uid}` },
})
for (const event of ['server_error', 'authorization.error', 'grant.error', 'backchannel.error', 'end_session.error']) {
  provider.on(event, (...details) => {
    const error = details.find((each) => each instanceof Error)
    process.stderr.write(`${event}: ${error?.stack ?? error} ${error?.error_description ?? ''}\n`)
  })
}

const answer = provider.callback()
const server = createServer((request, response) => {
  if (!request.url.startsWith('/interaction/')) {
    answer(request, response)
    return
  }
  const accountId = request.headers['x-account']
  const result = accountId
    ? { login: { accountId } }
    : { error: 'access_denied', error_description: 'nobody is there' }
  provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false }).catch((error) => {
    response.statusCode = 500
    response.end(String(error.stack))
  })
})
// A test that waits for its turn on a busy machine keeps its connection.
server.keepAliveTimeout = 120_000
server.listen(config.port, '127.0.0.1')
