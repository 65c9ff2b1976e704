resource "weir_snapshot" "before_release" {
  project_id = weir_project.shop.id
  branch_id  = weir_project.shop.branch_id
  name       = "before the release"
}
