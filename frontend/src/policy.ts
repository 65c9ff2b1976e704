/**
 * What libraries have to know of the page's Content-Security-Policy before they are used.
 *
 * The dialogs' library keeps the page behind them from scrolling by a `style` element, which needs the page's nonce.
 * zod tries whether it may make functions of text, which it may not, and which the browser reports each time.
 */
type Shared = { __webpack_nonce__?: string; __zod_globalConfig?: { jitless?: boolean } }

const shared = globalThis as Shared
const nonce = document.querySelector<HTMLMetaElement>('meta[property="csp-nonce"]')?.nonce
if (nonce) shared.__webpack_nonce__ = nonce
// zod's own object, if it was loaded before this.
shared.__zod_globalConfig = Object.assign(shared.__zod_globalConfig ?? {}, { jitless: true })

export {}
