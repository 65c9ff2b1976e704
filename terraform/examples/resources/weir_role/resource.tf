resource "weir_role" "reports" {
  project_id = weir_project.shop.id
  branch_id  = weir_project.shop.branch_id
  name       = "reports"

  # Another text here gives the role a new password.
  password_version = "2026-11"
}
