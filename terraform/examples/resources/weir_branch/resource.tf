resource "weir_branch" "staging" {
  project_id = weir_project.shop.id
  name       = "staging"
  parent_id  = weir_project.shop.branch_id
}
