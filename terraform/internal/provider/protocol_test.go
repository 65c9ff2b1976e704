package provider

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// A provider as OpenTofu drives it, by the plugin protocol, without OpenTofu, against an API that a test makes up.
type driven struct {
	t       *testing.T
	server  tfprotov6.ProviderServer
	schemas *tfprotov6.GetProviderSchemaResponse
}

type answers map[string]func(w http.ResponseWriter, r *http.Request)

func driving(t *testing.T, api answers) *driven {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, there := api[r.Method+" "+strings.TrimPrefix(r.URL.EscapedPath(), "/api/v2")]
		if !there {
			t.Errorf("the API was asked %s %s", r.Method, r.URL)
			w.WriteHeader(http.StatusTeapot)
			return
		}
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	made, err := providerserver.NewProtocol6WithError(New("test")())()
	if err != nil {
		t.Fatal(err)
	}
	d := &driven{t: t, server: made}
	d.schemas, err = made.GetProviderSchema(context.Background(), &tfprotov6.GetProviderSchemaRequest{})
	d.well(d.schemas.Diagnostics, err)
	config := d.object(d.schemas.Provider, map[string]any{"api_url": server.URL, "api_key": "key"})
	answer, err := made.ConfigureProvider(context.Background(), &tfprotov6.ConfigureProviderRequest{Config: config})
	d.well(answer.Diagnostics, err)
	return d
}

func (d *driven) well(problems []*tfprotov6.Diagnostic, err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
	for _, problem := range problems {
		d.t.Fatalf("%s: %s", problem.Summary, problem.Detail)
	}
}

// object is a configuration with these attributes; those that are not named are null.
func (d *driven) object(schema *tfprotov6.Schema, given map[string]any) *tfprotov6.DynamicValue {
	d.t.Helper()
	of := schema.ValueType().(tftypes.Object)
	values := map[string]tftypes.Value{}
	for name, kind := range of.AttributeTypes {
		values[name] = tftypes.NewValue(kind, given[name])
	}
	value, err := tfprotov6.NewDynamicValue(of, tftypes.NewValue(of, values))
	if err != nil {
		d.t.Fatal(err)
	}
	return &value
}

func (d *driven) null(name string) *tfprotov6.DynamicValue {
	of := d.schemas.ResourceSchemas[name].ValueType()
	value, err := tfprotov6.NewDynamicValue(of, tftypes.NewValue(of, nil))
	if err != nil {
		d.t.Fatal(err)
	}
	return &value
}

// create plans and applies a new resource, and returns its state with what the provider says of it.
func (d *driven) create(name string, given map[string]any) (*tfprotov6.DynamicValue, []*tfprotov6.Diagnostic) {
	d.t.Helper()
	config := d.object(d.schemas.ResourceSchemas[name], given)
	plan, err := d.server.PlanResourceChange(context.Background(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: name, PriorState: d.null(name), ProposedNewState: config, Config: config,
	})
	d.well(plan.Diagnostics, err)
	return d.apply(name, d.null(name), plan.PlannedState, config)
}

// update plans and applies what is given to a resource that there is; what is not given stays as it is.
func (d *driven) update(
	name string, prior *tfprotov6.DynamicValue, given map[string]any,
) (*tfprotov6.DynamicValue, []*tfprotov6.Diagnostic) {
	d.t.Helper()
	plan, config := d.plan(name, prior, given)
	if len(plan.RequiresReplace) > 0 {
		d.t.Fatalf("%s is to be replaced because of %v", name, plan.RequiresReplace)
	}
	return d.apply(name, prior, plan.PlannedState, config)
}

// replacing says because of which attributes another resource would be made of what is given.
func (d *driven) replacing(
	name string, prior *tfprotov6.DynamicValue, given map[string]any,
) []*tftypes.AttributePath {
	d.t.Helper()
	plan, _ := d.plan(name, prior, given)
	return plan.RequiresReplace
}

func (d *driven) plan(
	name string, prior *tfprotov6.DynamicValue, given map[string]any,
) (*tfprotov6.PlanResourceChangeResponse, *tfprotov6.DynamicValue) {
	d.t.Helper()
	schema := d.schemas.ResourceSchemas[name]
	proposed := d.attributes(name, prior)
	of := schema.ValueType().(tftypes.Object)
	for attribute, value := range given {
		proposed[attribute] = tftypes.NewValue(of.AttributeTypes[attribute], value)
	}
	whole, err := tfprotov6.NewDynamicValue(of, tftypes.NewValue(of, proposed))
	d.well(nil, err)
	config := d.object(schema, given)
	plan, err := d.server.PlanResourceChange(context.Background(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: name, PriorState: prior, ProposedNewState: &whole, Config: config,
	})
	d.well(plan.Diagnostics, err)
	return plan, config
}

func (d *driven) apply(
	name string, prior, planned, config *tfprotov6.DynamicValue,
) (*tfprotov6.DynamicValue, []*tfprotov6.Diagnostic) {
	d.t.Helper()
	applied, err := d.server.ApplyResourceChange(context.Background(), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: name, PriorState: prior, PlannedState: planned, Config: config,
	})
	d.well(nil, err)
	return applied.NewState, applied.Diagnostics
}

func (d *driven) destroy(name string, state *tfprotov6.DynamicValue) []*tfprotov6.Diagnostic {
	d.t.Helper()
	_, problems := d.apply(name, state, d.null(name), d.null(name))
	return problems
}

func (d *driven) read(name string, state *tfprotov6.DynamicValue) (map[string]tftypes.Value, []*tfprotov6.Diagnostic) {
	d.t.Helper()
	answer, err := d.server.ReadResource(context.Background(), &tfprotov6.ReadResourceRequest{
		TypeName: name, CurrentState: state,
	})
	d.well(nil, err)
	return d.attributes(name, answer.NewState), answer.Diagnostics
}

// attributes are a state's; nil of a resource that is gone.
func (d *driven) attributes(name string, state *tfprotov6.DynamicValue) map[string]tftypes.Value {
	d.t.Helper()
	value, err := state.Unmarshal(d.schemas.ResourceSchemas[name].ValueType())
	if err != nil {
		d.t.Fatal(err)
	}
	if value.IsNull() {
		return nil
	}
	var attributes map[string]tftypes.Value
	if err := value.As(&attributes); err != nil {
		d.t.Fatal(err)
	}
	return attributes
}

func text(t *testing.T, value tftypes.Value) string {
	t.Helper()
	var read string
	if err := value.As(&read); err != nil {
		t.Fatal(err)
	}
	return read
}

func saying(status int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

const (
	roleJSON = `{"role": {"branch_id": "br", "name": "app", "password": "hunter2", "created_at": "2026-11-01T00:00:00Z"},
		"operations": [{"id": "o", "project_id": "p", "action": "apply_config", "status": "scheduling"}]}`
	gone = `{"request_id": "req-12345678", "code": "NOT_FOUND", "message": "role app does not exist"}`
)

var role = map[string]any{"project_id": "p", "branch_id": "br", "name": "app"}

func TestARoleIsMadeReadAndMissed(t *testing.T) {
	api := answers{
		"POST /projects/p/branches/br/roles":    saying(201, roleJSON),
		"GET /projects/p/operations/o":          saying(200, `{"operation": {"id": "o", "project_id": "p", "status": "finished"}}`),
		"GET /projects/p/branches/br/roles/app": saying(200, roleJSON),
	}
	d := driving(t, api)
	state, problems := d.create("weir_role", role)
	d.well(problems, nil)
	if strings.Contains(string(state.MsgPack), "hunter2") {
		t.Error("the password is in the state")
	}
	if id := text(t, d.attributes("weir_role", state)["id"]); id != "p/br/app" {
		t.Error(id)
	}
	api["GET /projects/p/branches/br/roles/app"] = saying(404, gone)
	if attributes, problems := d.read("weir_role", state); attributes != nil || len(problems) > 0 {
		t.Errorf("a role that was deleted outside: %v, %v", attributes, problems)
	}
	api["GET /projects/p/branches/br/roles/app"] = saying(404, "nginx")
	if attributes, problems := d.read("weir_role", state); attributes == nil || len(problems) == 0 {
		t.Error("a 404 that is not the API's makes the role vanish")
	}
	api["DELETE /projects/p/branches/br/roles/app"] = saying(404, gone)
	d.well(d.destroy("weir_role", state), nil)
}

// What the API has made is in the state even when it does not get ready: the next apply can deal with it.
func TestWhatWasMadeIsKeptWhenItsOperationFails(t *testing.T) {
	d := driving(t, answers{
		"POST /projects/p/branches/br/roles": saying(201, roleJSON),
		"GET /projects/p/operations/o": saying(200,
			`{"operation": {"id": "o", "project_id": "p", "status": "failed", "error": "the compute does not answer"}}`),
	})
	state, problems := d.create("weir_role", role)
	if len(problems) != 1 || !strings.Contains(problems[0].Detail, "the compute does not answer") {
		t.Errorf("got %v", problems)
	}
	if attributes := d.attributes("weir_role", state); attributes == nil {
		t.Error("the role is not in the state")
	}
}

func rolloutJSON(status, reason, gate string) string {
	body, _ := json.Marshal(map[string]any{"rollout": map[string]any{
		"id": "ro", "name": "n", "feature": "image_pushdown", "status": status, "status_reason": reason, "gate": gate,
		"selector": map[string]any{}, "strategy": map[string]any{"bake_seconds": 120, "waves": []any{}},
		"created_at": "2026-11-01T00:00:00Z", "computes_total": 4, "switched_total": 1,
	}})
	return string(body)
}

func TestARunningRolloutIsNotDestroyedUnlessItMayBeAborted(t *testing.T) {
	for _, abort := range []bool{false, true} {
		var aborted sync.Once
		status := "running"
		api := answers{
			"POST /rollouts": saying(201, rolloutJSON("running", "", "")),
			"POST /rollouts/ro/abort": func(w http.ResponseWriter, r *http.Request) {
				aborted.Do(func() { status = "aborting" })
				saying(200, rolloutJSON(status, "", ""))(w, r)
			},
			"GET /rollouts/ro": func(w http.ResponseWriter, r *http.Request) {
				saying(200, rolloutJSON(status, "", ""))(w, r)
				if status == "aborting" {
					status = "aborted"
				}
			},
		}
		d := driving(t, api)
		state, problems := d.create("weir_rollout", map[string]any{
			"feature": "image_pushdown", "wait_for": "started", "abort_on_destroy": abort,
		})
		d.well(problems, nil)
		problems = d.destroy("weir_rollout", state)
		if abort && (len(problems) > 0 || status != "aborted") {
			t.Errorf("got %v, and the rollout is %s", problems, status)
		}
		if !abort && (len(problems) != 1 || !strings.Contains(problems[0].Detail, "abort_on_destroy = true") || status != "running") {
			t.Errorf("got %v, and the rollout is %s", problems, status)
		}
	}
}

func TestWaitingForARolloutEndsWhereWaitingDoesNotHelp(t *testing.T) {
	cases := []struct{ policy, status, gate, want string }{
		{waitFinished, "completed", "", "reached"},
		{waitFinished, "held", "wave-0-failed", "p99 rose"},
		{waitFinished, "held", "wave-1-inconclusive", "p99 rose"},
		{waitWave, "failed", "", "is failed"},
		{waitFinished, "rolled_back", "", "is rolled_back"},
		{waitFinished, "aborted", "", "is aborted"},
		{waitStarted, "held", "wave-0-failed", "reached"},
		{waitWave, "completed", "", "reached"},
	}
	for _, one := range cases {
		d := driving(t, answers{"POST /rollouts": saying(201, rolloutJSON(one.status, "p99 rose", one.gate))})
		state, problems := d.create("weir_rollout", map[string]any{"feature": "image_pushdown", "wait_for": one.policy})
		if d.attributes("weir_rollout", state) == nil {
			t.Errorf("%+v: not in the state", one)
		}
		if one.want == "reached" {
			d.well(problems, nil)
		} else if len(problems) != 1 || !strings.Contains(problems[0].Detail, one.want) {
			t.Errorf("%+v: got %v", one, problems)
		}
	}
}

// Otherwise a rollout that is held could never be given what destroying it needs.
func TestAHeldRolloutCanBeAllowedToBeAborted(t *testing.T) {
	held := rolloutJSON("held", "p99 rose", "wave-0-failed")
	d := driving(t, answers{"POST /rollouts": saying(201, held), "GET /rollouts/ro": saying(200, held)})
	asked := map[string]any{"feature": "image_pushdown", "wait_for": waitFinished, "abort_on_destroy": false}
	state, problems := d.create("weir_rollout", asked)
	if len(problems) != 1 {
		t.Fatalf("got %v", problems)
	}
	asked["abort_on_destroy"] = true
	state, problems = d.update("weir_rollout", state, asked)
	d.well(problems, nil)
	var may bool
	if err := d.attributes("weir_rollout", state)["abort_on_destroy"].As(&may); err != nil || !may {
		t.Errorf("abort_on_destroy is %v, %v", may, err)
	}
	// Another policy is waited for, which does not help here.
	asked["wait_for"] = waitWave
	if _, problems = d.update("weir_rollout", state, asked); len(problems) != 1 {
		t.Errorf("got %v", problems)
	}
}

// A gate that the strategy asks for is waited at: the rollout goes on when a person approves.
func TestAnApprovalIsWaitedFor(t *testing.T) {
	d := driving(t, answers{
		"POST /rollouts":   saying(201, rolloutJSON("held", "the plan waits for approval", "plan")),
		"GET /rollouts/ro": saying(200, rolloutJSON("completed", "", "")),
	})
	state, problems := d.create("weir_rollout", map[string]any{"feature": "image_pushdown"})
	d.well(problems, nil)
	if status := text(t, d.attributes("weir_rollout", state)["status"]); status != "completed" {
		t.Error(status)
	}
}

// What can be said of a rollout is what the API's description says, no more and no less.
func TestRolloutsHaveAllFieldsOfTheAPI(t *testing.T) {
	raw, err := os.ReadFile("../../../openapi/weir.json")
	if err != nil {
		t.Fatal(err)
	}
	var description struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(raw, &description); err != nil {
		t.Fatal(err)
	}
	for name, fields := range map[string][]field{
		"Selector": selectorFields, "Strategy": strategyFields, "WaveSpec": waveFields, "Span": spanFields,
	} {
		var ours, theirs []string
		for _, f := range fields {
			ours = append(ours, f.name)
		}
		for property := range description.Components.Schemas[name].Properties {
			theirs = append(theirs, property)
		}
		slices.Sort(ours)
		slices.Sort(theirs)
		if !slices.Equal(ours, theirs) {
			t.Errorf("%s: the provider has %v, the API %v", name, ours, theirs)
		}
	}
}

func TestTheProviderSaysWhatItLacks(t *testing.T) {
	t.Setenv(urlVariable, "")
	t.Setenv(keyVariable, "")
	server, err := providerserver.NewProtocol6WithError(New("test")())()
	if err != nil {
		t.Fatal(err)
	}
	d := &driven{t: t, server: server}
	d.schemas, err = server.GetProviderSchema(context.Background(), &tfprotov6.GetProviderSchemaRequest{})
	d.well(nil, err)
	answer, err := server.ConfigureProvider(context.Background(), &tfprotov6.ConfigureProviderRequest{
		Config: d.object(d.schemas.Provider, nil),
	})
	d.well(nil, err)
	if len(answer.Diagnostics) == 0 || !strings.Contains(answer.Diagnostics[0].Detail, urlVariable) {
		t.Errorf("got %v", answer.Diagnostics)
	}
}
