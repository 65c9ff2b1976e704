resource "weir_endpoint" "staging" {
  project_id              = weir_project.shop.id
  branch_id               = weir_branch.staging.id
  pg_settings             = { work_mem = "32MB" }
  suspend_timeout_seconds = 300
}
