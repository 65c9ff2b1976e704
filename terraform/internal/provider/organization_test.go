package provider

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

const (
	memberJSON = `{"member": {"id": "m", "user_id": "u", "org_id": "o", "role": "viewer", "joined_at": "2026-11-01T00:00:00Z"},
		"user": {"email": "ann@example.org", "name": "Ann", "has_mfa": false}}`
	noMember = `{"request_id": "req-12345678", "code": "NOT_FOUND", "message": "member m does not exist"}`
)

func TestAMemberIsAddedChangedMissedAndRemoved(t *testing.T) {
	var sent string
	api := answers{
		"GET /users/me/organizations": saying(200, `{"organizations": [{"id": "o", "name": "shop"}]}`),
		"POST /organizations/o/members": func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			sent = string(body)
			saying(201, memberJSON)(w, r)
		},
		"GET /organizations/o/members":     saying(200, `{"members": [`+memberJSON+`]}`),
		"PATCH /organizations/o/members/m": saying(200, `{}`),
	}
	d := driving(t, api)
	asked := map[string]any{"email": "ann@example.org", "role": "viewer"}
	state, problems := d.create("weir_organization_member", asked)
	d.well(problems, nil)
	var body map[string]string
	if err := json.Unmarshal([]byte(sent), &body); err != nil || body["email"] != "ann@example.org" || body["role"] != "viewer" {
		t.Errorf("sent %s", sent)
	}
	if id := text(t, d.attributes("weir_organization_member", state)["organization_id"]); id != "o" {
		t.Error(id)
	}
	asked["role"] = "admin"
	state, problems = d.update("weir_organization_member", state, asked)
	d.well(problems, nil)
	if role := text(t, d.attributes("weir_organization_member", state)["role"]); role != "admin" {
		t.Error(role)
	}
	// What the API says counts, whoever changed it.
	attributes, problems := d.read("weir_organization_member", state)
	d.well(problems, nil)
	if role := text(t, attributes["role"]); role != "viewer" {
		t.Error(role)
	}
	api["GET /organizations/o/members"] = saying(200, `{"members": []}`)
	if attributes, problems := d.read("weir_organization_member", state); attributes != nil || len(problems) > 0 {
		t.Errorf("a member who was removed outside: %v, %v", attributes, problems)
	}
	api["DELETE /organizations/o/members/m"] = saying(409,
		`{"request_id": "r", "code": "CONFLICT", "message": "ann@example.org is the last owner"}`)
	if problems := d.destroy("weir_organization_member", state); len(problems) != 1 ||
		!strings.Contains(problems[0].Detail, "the last owner") {
		t.Errorf("got %v", problems)
	}
	api["DELETE /organizations/o/members/m"] = saying(404, noMember)
	d.well(d.destroy("weir_organization_member", state), nil)
}

const organizationJSON = `{"id": "o", "name": "shop", "handle": "shop", "email": "shop@example.org", "operator": false,
	"created_at": "2026-11-01T00:00:00Z"}`

func TestAnOrganizationIsMadeChangedMissedAndEnded(t *testing.T) {
	var sent string
	noting := func(status int, body string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			read, _ := io.ReadAll(r.Body)
			sent = string(read)
			saying(status, body)(w, r)
		}
	}
	api := answers{
		"POST /fleet/organizations":    noting(201, organizationJSON),
		"GET /fleet/organizations/o":   saying(200, organizationJSON),
		"PATCH /fleet/organizations/o": noting(200, strings.ReplaceAll(organizationJSON, `"shop"`, `"store"`)),
	}
	d := driving(t, api)
	asked := map[string]any{"name": "shop", "email": "shop@example.org", "owner": "ann@example.org"}
	state, problems := d.create("weir_organization", asked)
	d.well(problems, nil)
	if sent != `{"email":"shop@example.org","name":"shop","owner":"ann@example.org"}` {
		t.Errorf("sent %s", sent)
	}
	// The API does not tell who became the owner: what was asked for stays in the state.
	attributes, problems := d.read("weir_organization", state)
	d.well(problems, nil)
	if owner := text(t, attributes["owner"]); owner != "ann@example.org" {
		t.Error(owner)
	}
	asked["name"] = "store"
	state, problems = d.update("weir_organization", state, asked)
	d.well(problems, nil)
	if sent != `{"email":"shop@example.org","name":"store"}` {
		t.Errorf("sent %s", sent)
	}
	// The name that somebody gave it outside is what the next plan begins with.
	attributes, problems = d.read("weir_organization", state)
	d.well(problems, nil)
	if name := text(t, attributes["name"]); name != "shop" {
		t.Error(name)
	}
	// Another owner makes another organization. One that has none, as after an import, is given none: that is said.
	asked["owner"] = "ben@example.org"
	if replaced := d.replacing("weir_organization", state, asked); len(replaced) != 1 {
		t.Errorf("replaced because of %v", replaced)
	}
	asked["owner"] = nil
	state, problems = d.update("weir_organization", state, asked)
	d.well(problems, nil)
	asked["owner"] = "ben@example.org"
	if _, problems = d.update("weir_organization", state, asked); len(problems) != 1 ||
		!strings.Contains(problems[0].Detail, "ben@example.org does not become one") {
		t.Errorf("got %v", problems)
	}
	const gone = `{"request_id": "req-12345678", "code": "NOT_FOUND", "message": "organization o does not exist"}`
	api["GET /fleet/organizations/o"] = saying(403, `{"request_id": "r", "code": "FORBIDDEN", "message": "for operators"}`)
	if attributes, problems := d.read("weir_organization", state); attributes == nil || len(problems) != 1 {
		t.Error("a key that may not read it makes the organization vanish")
	}
	api["GET /fleet/organizations/o"] = saying(404, gone)
	if attributes, problems := d.read("weir_organization", state); attributes != nil || len(problems) > 0 {
		t.Errorf("an organization that was ended outside: %v, %v", attributes, problems)
	}
	api["DELETE /fleet/organizations/o"] = saying(409,
		`{"request_id": "r", "code": "CONFLICT", "message": "organization store has 2 project(s): p, q"}`)
	if problems := d.destroy("weir_organization", state); len(problems) != 1 ||
		!strings.Contains(problems[0].Detail, "has 2 project(s): p, q") {
		t.Errorf("got %v", problems)
	}
	api["DELETE /fleet/organizations/o"] = saying(404, gone)
	d.well(d.destroy("weir_organization", state), nil)
}

// What the API says of a schedule with usual values is no change of one that leaves them out.
func TestAScheduleThatLeavesThingsOutStaysAsItIs(t *testing.T) {
	var sent string
	api := answers{
		"PUT /projects/p/branches/br/backup_schedule": func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			sent = string(body)
			saying(200, `{}`)(w, r)
		},
		"GET /projects/p/branches/br/backup_schedule": saying(200, `{"schedule": [
			{"frequency": "weekly", "hour": 0, "day": 1, "retention_seconds": 3600, "next_at": "2026-11-01T00:00:00Z"}]}`),
	}
	d := driving(t, api)
	list := d.schemas.ResourceSchemas["weir_snapshot_schedule"].ValueType().(tftypes.Object).AttributeTypes["snapshots"].(tftypes.List)
	item := list.ElementType.(tftypes.Object)
	weekly := tftypes.NewValue(item, map[string]tftypes.Value{
		"frequency": tftypes.NewValue(tftypes.String, "weekly"), "hour": tftypes.NewValue(tftypes.Number, nil),
		"day": tftypes.NewValue(tftypes.Number, nil), "retention_seconds": tftypes.NewValue(tftypes.Number, 3600),
	})
	state, problems := d.create("weir_snapshot_schedule", map[string]any{
		"project_id": "p", "branch_id": "br", "snapshots": []tftypes.Value{weekly},
	})
	d.well(problems, nil)
	if sent != `{"schedule":[{"frequency":"weekly","retention_seconds":3600}]}` {
		t.Errorf("sent %s", sent)
	}
	attributes, problems := d.read("weir_snapshot_schedule", state)
	d.well(problems, nil)
	if !attributes["snapshots"].Equal(tftypes.NewValue(list, []tftypes.Value{weekly})) {
		t.Errorf("got %v", attributes["snapshots"])
	}
	api["GET /projects/p/branches/br/backup_schedule"] = saying(200, `{"schedule": []}`)
	if attributes, problems := d.read("weir_snapshot_schedule", state); attributes != nil || len(problems) > 0 {
		t.Errorf("a schedule that was ended outside: %v, %v", attributes, problems)
	}
	d.well(d.destroy("weir_snapshot_schedule", state), nil)
	if sent != `{"schedule":[]}` {
		t.Errorf("sent %s", sent)
	}
}
