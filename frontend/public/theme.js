// Runs before the first paint so that the chosen theme never flashes.
;(function () {
  var chosen = null
  try {
    chosen = localStorage.getItem('weir-theme')
  } catch {
    // Storage can be blocked; the system's preference then decides.
  }
  var dark = chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches
  document.documentElement.classList.toggle('dark', dark)
})()
