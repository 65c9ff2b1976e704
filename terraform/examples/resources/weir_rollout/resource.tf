resource "weir_rollout" "images" {
  name    = "page images to storage"
  feature = "image_pushdown"

  selector = {
    tags = { team = "payments" }
  }
  strategy = {
    waves = [
      { name = "canary", count = 1 },
      { name = "everyone", percent = 100 },
    ]
    soak_seconds = 3600
  }

  wait_for = "wave"

  timeouts {
    create = "6h"
  }
}
