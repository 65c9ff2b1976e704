package provider

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"weir/terraform-provider-weir/internal/client"
)

// known makes a person whom the installation knows and who is a member of nothing: by an invitation, which makes an
// account, and an end of the membership.
func known(t *testing.T, api *client.Client, email string) {
	t.Helper()
	ctx := context.Background()
	failed := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	own, err := api.Organization(ctx, "")
	failed(err)
	var made struct {
		Invitations []struct{ Token string } `json:"invitations"`
	}
	asked := client.Fields{"invitations": []client.Fields{{"email": email, "role": "viewer"}}}
	failed(api.Call(ctx, http.MethodPost, client.Path("organizations", own.ID, "invitations"), asked, &made))
	accepting := client.Fields{"token": made.Invitations[0].Token, "password": "correct horse battery staple"}
	failed(api.Call(ctx, http.MethodPost, client.Path("invitations", "accept"), accepting, nil))
	members, err := api.Members(ctx, own.ID)
	failed(err)
	for _, member := range members {
		if member.User.Email == email {
			failed(api.RemoveMember(ctx, own.ID, member.Member.ID))
		}
	}
}

// An organization: made, the same plan is empty, renamed, imported, renamed outside, ended outside, destroyed.
func TestAccOrganization(t *testing.T) {
	api := outside(t)
	config := func(name string) string {
		return fmt.Sprintf(`
resource "weir_organization" "shop" {
  name  = %q
  email = "shop@example.org"
}
`, name)
	}
	const address = "weir_organization.shop"
	var id, last string
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		CheckDestroy: func(*terraform.State) error {
			if _, err := api.KeptOrganization(context.Background(), last); !client.IsNotFound(err) {
				return fmt.Errorf("organization %s is there still: %v", last, err)
			}
			return nil
		},
		Steps: []resource.TestStep{
			{
				Config: config("tf-shop"),
				Check: resource.ComposeTestCheckFunc(
					noted(address, "id", &id),
					resource.TestCheckResourceAttrSet(address, "created_at"),
					resource.TestCheckNoResourceAttr(address, "owner"),
				),
			},
			{Config: config("tf-store"), ConfigPlanChecks: planned(address, plancheck.ResourceActionUpdate)},
			{ResourceName: address, ImportState: true, ImportStateVerify: true},
			{
				PreConfig: func() {
					fields := client.Fields{"name": "by hand", "email": "by-hand@example.org"}
					if _, err := api.ChangeOrganization(context.Background(), id, fields); err != nil {
						t.Fatal(err)
					}
				},
				Config:           config("tf-store"),
				ConfigPlanChecks: planned(address, plancheck.ResourceActionUpdate),
			},
			{
				PreConfig: func() {
					if err := api.DeleteOrganization(context.Background(), id); err != nil {
						t.Fatal(err)
					}
				},
				Config:           config("tf-store"),
				ConfigPlanChecks: planned(address, plancheck.ResourceActionCreate),
				Check:            noted(address, "id", &last),
			},
			{
				Config: `
resource "weir_organization" "shop" {
  name  = "tf-store"
  email = "shop@example.org"
  owner = "tf-owner@example.org"
}
`,
				ExpectError: regexp.MustCompile(`counts when the organization is made`),
			},
		},
	})
}

// An owner whom nobody knows: nothing is made, and the name is free for the next apply, whose owner is known.
func TestAccAnOrganizationOfNobodyIsNotMade(t *testing.T) {
	known(t, outside(t), "tf-owner@example.org")
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		Steps: []resource.TestStep{
			{
				Config: `
resource "weir_organization" "shop" {
  name  = "tf-of-nobody"
  email = "shop@example.org"
  owner = "nobody@example.org"
}
`,
				ExpectError: regexp.MustCompile(`nobody with the email\s+nobody@example.org\s+is\s+known`),
			},
			{
				Config: `
resource "weir_organization" "shop" {
  name  = "tf-of-nobody"
  email = "shop@example.org"
  owner = "tf-owner@example.org"
}
`,
				Check: resource.TestCheckResourceAttr("weir_organization.shop", "owner", "tf-owner@example.org"),
			},
		},
	})
}

// A membership: made, given another role, imported, changed outside, ended outside, destroyed.
func TestAccOrganizationMember(t *testing.T) {
	api := outside(t)
	known(t, api, "tf-member@example.org")
	config := func(role string) string {
		return fmt.Sprintf(`
resource "weir_organization_member" "one" {
  email = "tf-member@example.org"
  role  = %q
}
`, role)
	}
	const address = "weir_organization_member.one"
	var organization, id string
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		CheckDestroy: func(*terraform.State) error {
			members, err := api.Members(context.Background(), organization)
			for _, member := range members {
				if member.User.Email == "tf-member@example.org" {
					return fmt.Errorf("%s is a member still", member.User.Email)
				}
			}
			return err
		},
		Steps: []resource.TestStep{
			{
				Config: config("viewer"),
				Check: resource.ComposeTestCheckFunc(
					noted(address, "organization_id", &organization), noted(address, "id", &id),
					resource.TestCheckResourceAttrSet(address, "user_id"),
				),
			},
			{Config: config("admin"), ConfigPlanChecks: planned(address, plancheck.ResourceActionUpdate)},
			{
				ResourceName: address, ImportState: true, ImportStateVerify: true,
				ImportStateIdFunc: func(*terraform.State) (string, error) { return organization + "/" + id, nil },
			},
			{
				PreConfig: func() {
					if err := api.ChangeMember(context.Background(), organization, id, "viewer"); err != nil {
						t.Fatal(err)
					}
				},
				Config: config("admin"), ConfigPlanChecks: planned(address, plancheck.ResourceActionUpdate),
			},
			{
				PreConfig: func() {
					if err := api.RemoveMember(context.Background(), organization, id); err != nil {
						t.Fatal(err)
					}
				},
				Config: config("admin"), ConfigPlanChecks: planned(address, plancheck.ResourceActionCreate),
			},
		},
	})
}
