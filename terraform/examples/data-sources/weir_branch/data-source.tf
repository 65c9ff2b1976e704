# The project's default branch.
data "weir_branch" "main" {
  project_id = data.weir_project.shop.id
}
