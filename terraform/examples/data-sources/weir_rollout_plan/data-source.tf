data "weir_rollout_plan" "images" {
  feature  = "image_pushdown"
  selector = { tags = { team = "payments" } }
}

output "left_out" {
  value = { for compute in data.weir_rollout_plan.images.excluded : compute.compute_id => compute.reason }
}
