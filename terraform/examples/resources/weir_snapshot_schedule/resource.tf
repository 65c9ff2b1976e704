resource "weir_snapshot_schedule" "main" {
  project_id = weir_project.shop.id
  branch_id  = weir_project.shop.branch_id
  snapshots = [
    { frequency = "daily", hour = 3, retention_seconds = 604800 },
    { frequency = "monthly" },
  ]
}
