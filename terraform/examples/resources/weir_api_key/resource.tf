resource "weir_api_key" "ci" {
  name = "ci"
}
