resource "weir_organization" "shop" {
  name  = "shop"
  email = "shop@example.org"
  owner = "ann@example.org"
}
