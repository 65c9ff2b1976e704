package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-testing/echoprovider"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"weir/terraform-provider-weir/internal/client"
)

// The tests named TestAcc run OpenTofu against a real Weir, which TF_ACC, WEIR_API_URL and WEIR_API_KEY are of:
// `make test-terraform` starts one for them.

var factories = map[string]func() (tfprotov6.ProviderServer, error){
	"weir": providerserver.NewProtocol6WithError(New("test")()),
	"echo": echoprovider.NewProviderServer(),
}

// outside is a client that changes things behind OpenTofu's back.
func outside(t *testing.T) *client.Client {
	t.Helper()
	if os.Getenv("TF_ACC") == "" {
		t.Skip("needs OpenTofu and a real Weir: make test-terraform")
	}
	api, err := client.New(os.Getenv(urlVariable), os.Getenv(keyVariable), "test", client.DefaultPace)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// noted keeps an attribute of a step's state for what later steps do outside.
func noted(address, attribute string, into *string) resource.TestCheckFunc {
	return func(state *terraform.State) error {
		found, there := state.RootModule().Resources[address]
		if !there {
			return fmt.Errorf("%s is not in the state", address)
		}
		*into = found.Primary.Attributes[attribute]
		return nil
	}
}

func doing(t *testing.T, api *client.Client, method string, path func() string, body any) func() {
	return func() {
		changed, err := api.Change(context.Background(), method, path(), body)
		if err == nil {
			err = api.Wait(context.Background(), changed.Operations)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func planned(address string, action plancheck.ResourceActionType) resource.ConfigPlanChecks {
	return resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(address, action)}}
}

func projectConfig(name, more string) string {
	return fmt.Sprintf(`
resource "weir_project" "this" {
  name          = %q
  role_name     = "keeper"
  database_name = "things"
  %s
}
`, name, more)
}

// A project: made, the same plan is empty, changed, imported, changed outside, deleted outside, destroyed.
func TestAccProject(t *testing.T) {
	api := outside(t)
	var id string
	path := func() string { return client.Path("projects", id) }
	changed := projectConfig("tf-renamed", `
  tags                     = { team = "a" }
  pg_settings              = { work_mem = "8MB" }
  max_wal_bytes_per_second = 16777216`)
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		CheckDestroy: func(*terraform.State) error {
			if _, err := api.Get(context.Background(), path()); !client.IsNotFound(err) {
				return fmt.Errorf("project %s is still there: %w", id, err)
			}
			return nil
		},
		Steps: []resource.TestStep{
			{
				Config: projectConfig("tf-project", ""),
				Check: resource.ComposeTestCheckFunc(
					noted("weir_project.this", "id", &id),
					resource.TestCheckResourceAttrSet("weir_project.this", "branch_id"),
					resource.TestCheckResourceAttr("weir_project.this", "branch_name", "main"),
				),
			},
			{Config: changed, ConfigPlanChecks: planned("weir_project.this", plancheck.ResourceActionUpdate)},
			{
				ResourceName: "weir_project.this", ImportState: true, ImportStateVerify: true,
				// What only its making knows.
				ImportStateVerifyIgnore: []string{"branch_name", "role_name", "database_name", "timeouts"},
			},
			{
				PreConfig: doing(t, api, http.MethodPatch, path, client.Fields{"project": client.Fields{
					"name": "renamed by hand", "tags": client.Fields{}, "settings": client.Fields{
						"quota": client.Fields{"wal_bytes_per_second": 0}},
				}}),
				Config:           changed,
				ConfigPlanChecks: planned("weir_project.this", plancheck.ResourceActionUpdate),
				Check:            resource.TestCheckResourceAttr("weir_project.this", "tags.team", "a"),
			},
			{
				PreConfig:        doing(t, api, http.MethodDelete, path, nil),
				Config:           changed,
				ConfigPlanChecks: planned("weir_project.this", plancheck.ResourceActionCreate),
				Check:            noted("weir_project.this", "id", &id),
			},
		},
	})
}

const branchParts = `
resource "weir_branch" "dev" {
  project_id = weir_project.this.id
  name       = %q
  durability = "receive"
}

resource "weir_endpoint" "dev" {
  project_id              = weir_project.this.id
  branch_id               = weir_branch.dev.id
  pg_settings             = { work_mem = %q }
  suspend_timeout_seconds = 600
}

resource "weir_role" "app" {
  project_id       = weir_project.this.id
  branch_id        = weir_branch.dev.id
  name             = "app/one"
  password_version = %q
  depends_on       = [weir_endpoint.dev]
}

resource "weir_database" "app" {
  project_id = weir_project.this.id
  branch_id  = weir_branch.dev.id
  name       = "app"
  owner_name = weir_role.app.name
}

data "weir_project" "found" {
  name       = weir_project.this.name
  depends_on = [weir_endpoint.dev]
}

data "weir_branch" "found" {
  project_id = weir_project.this.id
  name       = weir_branch.dev.name
  depends_on = [weir_endpoint.dev]
}

data "weir_connection_uri" "app" {
  project_id    = weir_project.this.id
  branch_id     = weir_branch.dev.id
  role_name     = weir_role.app.name
  database_name = weir_database.app.name
}
`

// A branch with a compute, a role and a database, through the same life.
func TestAccBranchWithAllInIt(t *testing.T) {
	api := outside(t)
	config := func(name, memory, password string) string {
		return projectConfig("tf-branch", `pg_settings = { maintenance_work_mem = "32MB" }`) +
			fmt.Sprintf(branchParts, name, memory, password)
	}
	var project, branch, endpoint, before string
	in := func(parts ...string) func() string {
		return func() string {
			return client.Path("projects", project) + client.Path(parts...)
		}
	}
	inBranch := func(parts ...string) func() string {
		return func() string { return client.Path("projects", project, "branches", branch) + client.Path(parts...) }
	}
	last := config("dev-2", "12MB", "2")
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		Steps: []resource.TestStep{
			{
				Config: config("dev", "8MB", "1"),
				Check: resource.ComposeTestCheckFunc(
					noted("weir_project.this", "id", &project), noted("weir_branch.dev", "id", &branch),
					noted("weir_endpoint.dev", "id", &endpoint), noted("data.weir_connection_uri.app", "uri", &before),
					// The project's settings are not the endpoint's: it has those that are given.
					resource.TestCheckResourceAttr("weir_endpoint.dev", "pg_settings.%", "1"),
					resource.TestCheckResourceAttrPair("data.weir_branch.found", "id", "weir_branch.dev", "id"),
					resource.TestCheckResourceAttrPair("data.weir_branch.found", "endpoint_id", "weir_endpoint.dev", "id"),
					resource.TestCheckResourceAttrPair("data.weir_project.found", "id", "weir_project.this", "id"),
				),
			},
			{
				Config: last,
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction("weir_branch.dev", plancheck.ResourceActionUpdate),
					plancheck.ExpectResourceAction("weir_endpoint.dev", plancheck.ResourceActionUpdate),
					plancheck.ExpectResourceAction("weir_role.app", plancheck.ResourceActionUpdate),
				}},
			},
			{
				RefreshState: true,
				Check: func(state *terraform.State) error {
					var after string
					err := noted("data.weir_connection_uri.app", "uri", &after)(state)
					if err == nil && after == before {
						err = errors.New("the password is the old one")
					}
					return err
				},
			},
			{
				ResourceName: "weir_branch.dev", ImportState: true, ImportStateVerify: true,
				ImportStateIdFunc:       func(*terraform.State) (string, error) { return project + "/" + branch, nil },
				ImportStateVerifyIgnore: []string{"timeouts"},
			},
			{
				ResourceName: "weir_endpoint.dev", ImportState: true, ImportStateVerify: true,
				ImportStateIdFunc:       func(*terraform.State) (string, error) { return project + "/" + endpoint, nil },
				ImportStateVerifyIgnore: []string{"timeouts"},
			},
			{
				ResourceName: "weir_role.app", ImportState: true, ImportStateVerify: true,
				ImportStateVerifyIgnore: []string{"password_version", "timeouts"},
			},
			{
				ResourceName: "weir_database.app", ImportState: true, ImportStateVerify: true,
				ImportStateVerifyIgnore: []string{"timeouts"},
			},
			{
				PreConfig: func() {
					doing(t, api, http.MethodPatch, in("endpoints", endpoint), client.Fields{"endpoint": client.Fields{
						"settings": client.Fields{"pg_settings": client.Fields{}}, "suspend_timeout_seconds": 60}})()
					doing(t, api, http.MethodPatch, inBranch(), client.Fields{"branch": client.Fields{
						"name": "by hand", "durability": "flush"}})()
					doing(t, api, http.MethodPatch, inBranch("databases", "app"), client.Fields{"database": client.Fields{
						"owner_name": "keeper"}})()
				},
				Config: last,
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction("weir_endpoint.dev", plancheck.ResourceActionUpdate),
					plancheck.ExpectResourceAction("weir_branch.dev", plancheck.ResourceActionUpdate),
					plancheck.ExpectResourceAction("weir_database.app", plancheck.ResourceActionUpdate),
					plancheck.ExpectResourceAction("weir_role.app", plancheck.ResourceActionNoop),
				}},
			},
			{
				PreConfig: func() {
					doing(t, api, http.MethodDelete, inBranch("databases", "app"), nil)()
					doing(t, api, http.MethodDelete, inBranch("roles", "app/one"), nil)()
				},
				Config: last,
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction("weir_role.app", plancheck.ResourceActionCreate),
					plancheck.ExpectResourceAction("weir_database.app", plancheck.ResourceActionCreate),
				}},
			},
			{
				PreConfig: doing(t, api, http.MethodDelete, func() string { return inBranch()() }, nil),
				Config:    last,
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction("weir_branch.dev", plancheck.ResourceActionCreate),
					plancheck.ExpectResourceAction("weir_endpoint.dev", plancheck.ResourceActionCreate),
				}},
			},
		},
	})
}

// The password comes to a provider's configuration and to no state.
func TestAccEphemeralConnectionURI(t *testing.T) {
	outside(t)
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		Steps: []resource.TestStep{{
			Config: projectConfig("tf-ephemeral", "") + `
ephemeral "weir_connection_uri" "this" {
  project_id    = weir_project.this.id
  role_name     = weir_project.this.role_name
  database_name = weir_project.this.database_name
}

provider "echo" {
  data = ephemeral.weir_connection_uri.this.uri
}

resource "echo" "this" {}
`,
			ConfigStateChecks: []statecheck.StateCheck{statecheck.ExpectKnownValue("echo.this", tfjsonpath.New("data"),
				knownvalue.StringRegexp(regexp.MustCompile(`^postgresql://keeper:[^@]+@.*/things`)))},
		}},
	})
}

func TestAccAPIKey(t *testing.T) {
	api := outside(t)
	var id string
	config := `resource "weir_api_key" "ci" { name = "tf-ci" }`
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		Steps: []resource.TestStep{
			{
				Config: config,
				Check: resource.ComposeTestCheckFunc(noted("weir_api_key.ci", "id", &id),
					resource.TestCheckResourceAttrSet("weir_api_key.ci", "key")),
			},
			{
				ResourceName: "weir_api_key.ci", ImportState: true, ImportStateVerify: true,
				ImportStateVerifyIgnore: []string{"key"},
			},
			{
				PreConfig: func() {
					if err := api.Call(context.Background(), http.MethodDelete, client.Path("api_keys", id), nil, nil); err != nil {
						t.Fatal(err)
					}
				},
				Config:           config,
				ConfigPlanChecks: planned("weir_api_key.ci", plancheck.ResourceActionCreate),
			},
		},
	})
}

func TestAccWhatTheAPIRefusesIsToldInItsWords(t *testing.T) {
	outside(t)
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		Steps: []resource.TestStep{{
			Config:      projectConfig("tf-refused", `pg_settings = { fsync = "off" }`),
			ExpectError: regexp.MustCompile(`(?s)fsync.*400\s+BAD_REQUEST.*request\s+id`),
		}},
	})
}
