data "weir_organization" "mine" {}
