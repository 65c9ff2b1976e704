resource "weir_database" "reports" {
  project_id = weir_project.shop.id
  branch_id  = weir_project.shop.branch_id
  name       = "reports"
  owner_name = weir_role.reports.name
}
