resource "weir_project" "shop" {
  name                      = "shop"
  role_name                 = "shop_owner"
  database_name             = "shop"
  history_retention_seconds = 3 * 86400
  tags                      = { team = "payments" }
  pg_settings               = { work_mem = "16MB" }
}
