resource "weir_organization_member" "ann" {
  email = "ann@example.org"
  role  = "member"
}
