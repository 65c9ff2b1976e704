data "weir_connection_uri" "shop" {
  project_id    = weir_project.shop.id
  role_name     = weir_project.shop.role_name
  database_name = weir_project.shop.database_name
}
