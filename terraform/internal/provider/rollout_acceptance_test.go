package provider

import (
	"fmt"
	"net/http"
	"regexp"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"

	"weir/terraform-provider-weir/internal/client"
)

const rolloutParts = `
locals { chosen = { project_ids = [weir_project.this.id] } }

data "weir_rollout_plan" "this" {
  feature  = "image_pushdown"
  selector = local.chosen
}
`

func rolloutConfig(project, strategy, policy string) string {
	return projectConfig(project, "") + rolloutParts + fmt.Sprintf(`
resource "weir_rollout" "this" {
  feature  = "image_pushdown"
  selector = local.chosen
  strategy = {
    waves            = [{ count = 1, name = "canary" }]
    baseline_seconds = 0
    bake_seconds     = 0
    settle_seconds   = 0
    %s
  }
  %s
}
`, strategy, policy)
}

// A rollout that is waited for to its end: nothing is planned afterwards, it can be imported, and destroying it only
// forgets it.
func TestAccRolloutToItsEnd(t *testing.T) {
	api := outside(t)
	var id string
	config := rolloutConfig("tf-rollout", "soak_seconds = 0", "")
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		Steps: []resource.TestStep{
			{
				Config: config,
				Check: resource.ComposeTestCheckFunc(
					noted("weir_rollout.this", "id", &id),
					resource.TestCheckResourceAttr("weir_rollout.this", "status", "completed"),
					resource.TestCheckResourceAttr("weir_rollout.this", "switched_total", "1"),
					resource.TestCheckResourceAttr("weir_rollout.this", "strategy.max_concurrent", "500"),
					resource.TestCheckResourceAttr("data.weir_rollout_plan.this", "computes_total", "1"),
					resource.TestCheckResourceAttr("data.weir_rollout_plan.this", "waves.0.computes", "1"),
				),
			},
			{
				ResourceName: "weir_rollout.this", ImportState: true, ImportStateVerify: true,
				ImportStateVerifyIgnore: []string{"timeouts"},
			},
			{Config: projectConfig("tf-rollout", "")},
		},
	})
	if rollout, err := api.Rollout(t.Context(), id); err != nil || rollout.Status != "completed" {
		t.Errorf("the forgotten rollout is %+v, %v", rollout, err)
	}
}

// A rollout that is only started, and waits for a person: destroying it is refused until it may be aborted.
func TestAccRunningRolloutIsNotDestroyedUnasked(t *testing.T) {
	api := outside(t)
	var id string
	started := func(abort string) string {
		return rolloutConfig("tf-running", "plan_approval_required = true", "wait_for = \"started\"\n"+abort)
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		Steps: []resource.TestStep{
			{Config: started(""), Check: noted("weir_rollout.this", "id", &id)},
			{
				Config: projectConfig("tf-running", ""), ExpectError: regexp.MustCompile(`has not ended and is not destroyed`),
			},
			{
				Config:           started("abort_on_destroy = true"),
				ConfigPlanChecks: planned("weir_rollout.this", plancheck.ResourceActionUpdate),
			},
			{Config: projectConfig("tf-running", "")},
		},
	})
	if rollout, err := api.Rollout(t.Context(), id); err != nil || rollout.Status != "aborted" {
		t.Errorf("the destroyed rollout is %+v, %v", rollout, err)
	}
}

// Waiting ends with `timeouts`, and what is waited for goes on.
func TestAccRolloutThatTakesTooLong(t *testing.T) {
	api := outside(t)
	limited := rolloutConfig("tf-late", "plan_approval_required = true", "abort_on_destroy = true\ntimeouts { create = \"5s\" }")
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		Steps: []resource.TestStep{
			{Config: projectConfig("tf-late", "")},
			{Config: limited, ExpectError: regexp.MustCompile(`(?s)is\s+not\s+completed.*goes\s+on`)},
			{
				// The endpoint is not to be left in a rollout: destroying aborts it.
				Config: projectConfig("tf-late", ""),
				Check:  resource.TestCheckResourceAttr("weir_project.this", "name", "tf-late"),
			},
		},
	})
	var answer struct{ Rollouts []client.Rollout }
	if err := api.Call(t.Context(), http.MethodGet, "/rollouts?limit=100", nil, &answer); err != nil {
		t.Fatal(err)
	}
	for _, rollout := range answer.Rollouts {
		if !rollout.Ended() {
			t.Errorf("rollout %s is left %s", rollout.ID, rollout.Status)
		}
	}
}
