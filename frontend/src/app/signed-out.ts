type Router = {
  state: { location: { pathname: string; href: string } }
  navigate: (to: { to: '/login'; search: { then: string } }) => unknown
}

/** Pages that people who are not signed in use as well: to sign in, and to make an account by an invitation. */
const OPEN = ['/login', '/accept-invitation']

/** Leads to the page for signing in, and from there back, unless the page that is shown asks for no session. */
export function leadToSignIn(router: Router): void {
  const { pathname, href } = router.state.location
  if (OPEN.includes(pathname.replace(/(?<=.)\/+$/, ''))) return
  void router.navigate({ to: '/login', search: { then: href } })
}
