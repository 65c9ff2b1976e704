# A project, two branches of it with a compute each, and a rollout over all of them.
terraform {
  required_providers {
    weir = {
      source = "weir/weir"
    }
  }
}

provider "weir" {}

variable "name" {
  type        = string
  default     = "shop"
  description = "Name of the project, and the tag by which the rollout chooses it."
}

resource "weir_project" "shop" {
  name          = var.name
  role_name     = "shop_owner"
  database_name = "shop"
  tags          = { application = var.name }
}

resource "weir_branch" "this" {
  for_each = toset(["staging", "review"])

  project_id = weir_project.shop.id
  parent_id  = weir_project.shop.branch_id
  name       = each.key
}

resource "weir_endpoint" "this" {
  for_each = weir_branch.this

  project_id              = weir_project.shop.id
  branch_id               = each.value.id
  suspend_timeout_seconds = 300
}

resource "weir_rollout" "images" {
  feature  = "image_pushdown"
  selector = { tags = { application = var.name } }
  strategy = {
    waves = [
      { name = "canary", count = 1 },
      { name = "everyone", percent = 100 },
    ]
    # Small and quiet databases say too little to compare: judge nothing, and switch them one wave after the other.
    baseline_seconds = 0
    bake_seconds     = 0
    settle_seconds   = 0
    soak_seconds     = 0
  }
  wait_for = "finished"

  timeouts {
    create = "30m"
  }

  depends_on = [weir_endpoint.this]
}

output "project" {
  value = weir_project.shop.id
}

output "rollout" {
  value = weir_rollout.images.status
}

output "switched" {
  value = weir_rollout.images.switched_total
}
