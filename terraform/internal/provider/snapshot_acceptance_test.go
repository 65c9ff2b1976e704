package provider

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"weir/terraform-provider-weir/internal/client"
)

const snapshotParts = `
resource "weir_snapshot" "kept" {
  project_id = weir_project.this.id
  branch_id  = weir_project.this.branch_id
  name       = %q
}

resource "weir_snapshot_schedule" "nightly" {
  project_id = weir_project.this.id
  branch_id  = weir_project.this.branch_id
  snapshots = [
    { frequency = "daily", hour = %d, retention_seconds = 604800 },
    { frequency = "weekly" },
  ]
}

data "weir_snapshot" "newest" {
  project_id = weir_project.this.id
  branch_id  = weir_project.this.branch_id
  depends_on = [weir_snapshot.kept]
}

data "weir_organization" "mine" {}

data "weir_project" "this" {
  id = weir_project.this.id
}
`

// A snapshot and a schedule: made, the same plan is empty, changed, imported, changed outside, deleted outside.
func TestAccSnapshots(t *testing.T) {
	api := outside(t)
	config := func(name string, hour int) string {
		return projectConfig("tf-snapshots", "") + fmt.Sprintf(snapshotParts, name, hour)
	}
	var project, branch, snapshot string
	last := config("kept-longer", 4)
	scheduled := func() string { return client.Path("projects", project, "branches", branch, "backup_schedule") }
	both := func(action plancheck.ResourceActionType) resource.ConfigPlanChecks {
		return resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
			plancheck.ExpectResourceAction("weir_snapshot.kept", action),
			plancheck.ExpectResourceAction("weir_snapshot_schedule.nightly", action),
		}}
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		Steps: []resource.TestStep{
			{
				Config: config("kept", 3),
				Check: resource.ComposeTestCheckFunc(
					noted("weir_project.this", "id", &project), noted("weir_project.this", "branch_id", &branch),
					noted("weir_snapshot.kept", "id", &snapshot),
					resource.TestCheckResourceAttrSet("weir_snapshot.kept", "lsn"),
					resource.TestCheckResourceAttrPair("data.weir_snapshot.newest", "id", "weir_snapshot.kept", "id"),
					resource.TestCheckResourceAttrPair("data.weir_organization.mine", "id", "data.weir_project.this", "owner_id"),
				),
			},
			{Config: last, ConfigPlanChecks: both(plancheck.ResourceActionUpdate)},
			{
				ResourceName: "weir_snapshot.kept", ImportState: true, ImportStateVerify: true,
				ImportStateIdFunc:       func(*terraform.State) (string, error) { return project + "/" + snapshot, nil },
				ImportStateVerifyIgnore: []string{"timeouts"},
			},
			{
				ResourceName: "weir_snapshot_schedule.nightly", ImportState: true,
				ImportStateIdFunc: func(*terraform.State) (string, error) { return project + "/" + branch, nil },
			},
			{
				PreConfig: func() {
					if _, err := api.ChangeSnapshot(context.Background(), project, snapshot, client.Fields{"name": "by hand"}); err != nil {
						t.Fatal(err)
					}
					doing(t, api, http.MethodPut, scheduled, client.Fields{"schedule": []client.Fields{{"frequency": "hourly"}}})()
				},
				Config: last, ConfigPlanChecks: both(plancheck.ResourceActionUpdate),
			},
			{
				PreConfig: func() {
					if err := api.Delete(context.Background(), client.Path("projects", project, "snapshots", snapshot)); err != nil {
						t.Fatal(err)
					}
					doing(t, api, http.MethodPut, scheduled, client.Fields{"schedule": []client.Fields{}})()
				},
				Config: last, ConfigPlanChecks: both(plancheck.ResourceActionCreate),
			},
		},
	})
}
