data "weir_project" "shop" {
  name = "shop"
}
