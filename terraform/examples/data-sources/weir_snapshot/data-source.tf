data "weir_snapshot" "newest" {
  project_id = weir_project.shop.id
  branch_id  = weir_project.shop.branch_id
}
