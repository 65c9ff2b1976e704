package provider

import (
	"context"
	"maps"
	"net/http"
	"regexp"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/mapplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"weir/terraform-provider-weir/internal/client"
)

type endpointResource struct{ onWeirResource }

type endpointModel struct {
	ID                    types.String   `tfsdk:"id"`
	ProjectID             types.String   `tfsdk:"project_id"`
	BranchID              types.String   `tfsdk:"branch_id"`
	Name                  types.String   `tfsdk:"name"`
	PgSettings            types.Map      `tfsdk:"pg_settings"`
	SuspendTimeoutSeconds types.Int64    `tfsdk:"suspend_timeout_seconds"`
	Disabled              types.Bool     `tfsdk:"disabled"`
	Type                  types.String   `tfsdk:"type"`
	Host                  types.String   `tfsdk:"host"`
	Port                  types.Int64    `tfsdk:"port"`
	PoolerHost            types.String   `tfsdk:"pooler_host"`
	CreatedAt             types.String   `tfsdk:"created_at"`
	Timeouts              timeouts.Value `tfsdk:"timeouts"`
}

// settingNames refuses names that the API would give back in other letters.
func settingNames() []validator.Map {
	lower := regexp.MustCompile(`^[^A-Z]+$`)
	return []validator.Map{mapvalidator.KeysAre(
		stringvalidator.RegexMatches(lower, "names of Postgres settings are written in small letters here"),
	)}
}

func (r *endpointResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "weir_endpoint"
}

func (r *endpointResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "The read-write compute of a branch and its address. A branch has at most one; the one of " +
			"a project's first branch is made with the project, and can be imported.",
		Attributes: map[string]schema.Attribute{
			"id":         lastingAttribute("Id of the endpoint."),
			"project_id": fixedAttribute("Id of the project."),
			"branch_id":  fixedAttribute("Id of the branch."),
			"name": schema.StringAttribute{
				MarkdownDescription: "Name of the endpoint. A name can be changed, and not taken away.",
				Optional:            true,
				Computed:            true,
				PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"pg_settings": schema.MapAttribute{
				MarkdownDescription: "Postgres settings by their names in small letters: the endpoint has these and no " +
					"others. The project's `pg_settings` of that moment unless given. A running compute takes a change at once.",
				Optional:      true,
				Computed:      true,
				ElementType:   types.StringType,
				PlanModifiers: []planmodifier.Map{mapplanmodifier.UseStateForUnknown()},
				Validators:    settingNames(),
			},
			"suspend_timeout_seconds": schema.Int64Attribute{
				MarkdownDescription: "After how many seconds without clients the compute is suspended; -1 is never, 0 is " +
					"the installation's default. The project's unless given.",
				Optional:      true,
				Computed:      true,
				PlanModifiers: []planmodifier.Int64{int64planmodifier.UseStateForUnknown()},
				Validators:    []validator.Int64{int64validator.Between(-1, 604800)},
			},
			"disabled": schema.BoolAttribute{
				MarkdownDescription: "A disabled endpoint's compute is suspended, and no client starts it.",
				Optional:            true,
				Computed:            true,
				Default:             booldefault.StaticBool(false),
			},
			"type": lastingAttribute("`read_write`: there are no others yet."),
			"host": lastingAttribute("Host at which clients connect."),
			"port": schema.Int64Attribute{
				MarkdownDescription: "Port at which clients connect.", Computed: true,
				PlanModifiers: []planmodifier.Int64{int64planmodifier.UseStateForUnknown()},
			},
			"pooler_host": lastingAttribute("Host for clients that share server connections; null without a proxy."),
			"created_at":  lastingAttribute("When the endpoint was made."),
		},
		Blocks: map[string]schema.Block{"timeouts": timeouts.BlockAll(ctx)},
	}
}

func (m *endpointModel) show(ctx context.Context, endpoint *client.Endpoint, diagnostics *diag.Diagnostics) {
	m.ID = types.StringValue(endpoint.ID)
	m.ProjectID = types.StringValue(endpoint.ProjectID)
	m.BranchID = types.StringValue(endpoint.BranchID)
	m.Name = types.StringPointerValue(endpoint.Name)
	m.PgSettings = mapOf(ctx, types.MapUnknown(types.StringType), endpoint.Settings.PgSettings, diagnostics)
	m.SuspendTimeoutSeconds = types.Int64Value(endpoint.SuspendTimeoutSeconds)
	m.Disabled = types.BoolValue(endpoint.Disabled)
	m.Type = types.StringValue(endpoint.Type)
	m.Host = types.StringValue(endpoint.Host)
	m.Port = types.Int64Value(endpoint.Port)
	m.PoolerHost = types.StringPointerValue(endpoint.PoolerHost)
	m.CreatedAt = types.StringValue(endpoint.CreatedAt)
}

func (m *endpointModel) where() string {
	return client.Path("projects", m.ProjectID.ValueString(), "endpoints", m.ID.ValueString())
}

func (m *endpointModel) changeable(ctx context.Context, diagnostics *diag.Diagnostics) client.Fields {
	fields := client.Fields{"disabled": m.Disabled.ValueBool()}
	put(fields, "name", m.Name)
	putNumber(fields, "suspend_timeout_seconds", m.SuspendTimeoutSeconds)
	if settings := stringMap(ctx, m.PgSettings, diagnostics); settings != nil {
		fields["settings"] = client.Fields{"pg_settings": settings}
	}
	return fields
}

func (r *endpointResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	plan, well := taken[endpointModel](ctx, req.Plan, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, plan.Timeouts.Create, &resp.Diagnostics)
	defer cancel()
	asked := stringMap(ctx, plan.PgSettings, &resp.Diagnostics)
	fields := plan.changeable(ctx, &resp.Diagnostics)
	put(fields, "branch_id", plan.BranchID)
	fields["type"] = "read_write"
	made, err := r.api.Change(ctx, http.MethodPost,
		client.Path("projects", plan.ProjectID.ValueString(), "endpoints"), client.Fields{"endpoint": fields})
	if err != nil {
		resp.Diagnostics.AddError("The endpoint of branch "+plan.BranchID.ValueString()+" was not created", err.Error())
		return
	}
	plan.show(ctx, made.Endpoint, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	err = r.api.Wait(ctx, made.Operations)
	if missing := lacking(fields, asked, made.Endpoint); err == nil && len(missing) > 0 {
		err = r.change(ctx, &plan, missing, &resp.Diagnostics)
		resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	}
	if err != nil {
		resp.Diagnostics.AddError("Endpoint "+plan.ID.ValueString()+" was created and is not ready", err.Error())
	}
}

// lacking is what a new endpoint has otherwise than it was asked for: the API adds the project's Postgres settings, and
// takes an idle time of 0 for the project's.
func lacking(fields client.Fields, asked map[string]string, made *client.Endpoint) client.Fields {
	missing := client.Fields{}
	if asked != nil && !maps.Equal(asked, made.Settings.PgSettings) {
		missing["settings"] = fields["settings"]
	}
	if seconds, given := fields["suspend_timeout_seconds"]; given && seconds != made.SuspendTimeoutSeconds {
		missing["suspend_timeout_seconds"] = seconds
	}
	return missing
}

func (r *endpointResource) change(
	ctx context.Context, model *endpointModel, fields client.Fields, diagnostics *diag.Diagnostics,
) error {
	changed, err := r.api.Change(ctx, http.MethodPatch, model.where(), client.Fields{"endpoint": fields})
	if err != nil {
		return err
	}
	model.show(ctx, changed.Endpoint, diagnostics)
	return r.api.Wait(ctx, changed.Operations)
}

func (r *endpointResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	state, well := taken[endpointModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, state.Timeouts.Read, &resp.Diagnostics)
	defer cancel()
	found, err := r.api.Get(ctx, state.where())
	if unread(ctx, resp, err, "Endpoint "+state.ID.ValueString()+" cannot be read") {
		return
	}
	state.show(ctx, found.Endpoint, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
}

func (r *endpointResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan, state endpointModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := within(ctx, plan.Timeouts.Update, &resp.Diagnostics)
	defer cancel()
	fields := plan.changeable(ctx, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	err := r.change(ctx, &plan, fields, &resp.Diagnostics)
	if err == nil && state.Disabled.ValueBool() && !plan.Disabled.ValueBool() {
		err = r.start(ctx, &plan)
	}
	if err != nil {
		resp.Diagnostics.AddError("Endpoint "+state.ID.ValueString()+" was not changed to the end", err.Error())
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

// start brings up the compute of an endpoint that was disabled: one that is made enabled is started, too.
func (r *endpointResource) start(ctx context.Context, model *endpointModel) error {
	started, err := r.api.Change(ctx, http.MethodPost, model.where()+"/start", nil)
	if err != nil {
		return err
	}
	return r.api.Wait(ctx, started.Operations)
}

func (r *endpointResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	state, well := taken[endpointModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, state.Timeouts.Delete, &resp.Diagnostics)
	defer cancel()
	if err := r.api.Delete(ctx, state.where()); err != nil {
		resp.Diagnostics.AddError("Endpoint "+state.ID.ValueString()+" was not deleted", err.Error())
	}
}

func (r *endpointResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	importParts(ctx, req, resp, "project_id", "id")
}

var _ resource.ResourceWithImportState = &endpointResource{}
