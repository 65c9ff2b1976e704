package provider

import (
	"context"
	"fmt"
	"maps"
	"net/http"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"weir/terraform-provider-weir/internal/client"
)

type projectResource struct{ onWeirResource }

type projectModel struct {
	ID                      types.String   `tfsdk:"id"`
	Name                    types.String   `tfsdk:"name"`
	RegionID                types.String   `tfsdk:"region_id"`
	Cell                    types.String   `tfsdk:"cell"`
	BranchName              types.String   `tfsdk:"branch_name"`
	RoleName                types.String   `tfsdk:"role_name"`
	DatabaseName            types.String   `tfsdk:"database_name"`
	HistoryRetentionSeconds types.Int64    `tfsdk:"history_retention_seconds"`
	Tags                    types.Map      `tfsdk:"tags"`
	PgSettings              types.Map      `tfsdk:"pg_settings"`
	SuspendTimeoutSeconds   types.Int64    `tfsdk:"suspend_timeout_seconds"`
	MaxBranchBytes          types.Int64    `tfsdk:"max_branch_bytes"`
	MaxWalBytesPerSecond    types.Int64    `tfsdk:"max_wal_bytes_per_second"`
	BranchID                types.String   `tfsdk:"branch_id"`
	EndpointID              types.String   `tfsdk:"endpoint_id"`
	PgVersion               types.Int64    `tfsdk:"pg_version"`
	TenantID                types.String   `tfsdk:"tenant_id"`
	ProxyHost               types.String   `tfsdk:"proxy_host"`
	CreatedAt               types.String   `tfsdk:"created_at"`
	Timeouts                timeouts.Value `tfsdk:"timeouts"`
}

func (r *projectResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "weir_project"
}

func (r *projectResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A project: a main branch with a role, a database and a running compute, and all " +
			"branches made of it. Destroying a project deletes all its data.",
		Attributes: projectAttributes(),
		Blocks:     map[string]schema.Block{"timeouts": timeouts.BlockAll(ctx)},
	}
}

func projectAttributes() map[string]schema.Attribute {
	limit := func(about string, least int64) schema.Int64Attribute {
		return schema.Int64Attribute{
			MarkdownDescription: about + " 0 is no limit, and the default.",
			Optional:            true,
			Computed:            true,
			Default:             int64default.StaticInt64(0),
			Validators:          []validator.Int64{int64validator.Any(int64validator.OneOf(0), int64validator.AtLeast(least))},
		}
	}
	lasting := []planmodifier.Int64{int64planmodifier.UseStateForUnknown()}
	return map[string]schema.Attribute{
		"id":          lastingAttribute("Id of the project."),
		"name":        schema.StringAttribute{MarkdownDescription: "Name of the project.", Required: true},
		"region_id":   birthAttribute("Region of the project; the installation's unless given."),
		"cell":        birthAttribute("Cell in which the project's computes run; the region's first unless given."),
		"branch_name": birthAttribute("Name of the project's first branch; `main` unless given."),
		"role_name":   birthAttribute("Name of the first role; the API chooses it unless given."),
		"database_name": birthAttribute(
			"Name of the first database, which the first role owns; the API chooses it unless given."),
		"history_retention_seconds": schema.Int64Attribute{
			MarkdownDescription: "For how long past states can be read, branched and restored, in seconds. What a " +
				"shorter time gives up is gone for good. A week unless given.",
			Optional:      true,
			Computed:      true,
			PlanModifiers: lasting,
			Validators:    []validator.Int64{int64validator.Between(0, 30*86400)},
		},
		"tags": schema.MapAttribute{
			MarkdownDescription: "Labels by which a rollout's selector can choose the project.",
			Optional:            true,
			ElementType:         types.StringType,
		},
		"pg_settings": schema.MapAttribute{
			MarkdownDescription: "Postgres settings with which later endpoints of the project begin, by their names in " +
				"small letters. Endpoints that there are keep theirs.",
			Optional:    true,
			ElementType: types.StringType,
			Validators:  settingNames(),
		},
		"suspend_timeout_seconds": schema.Int64Attribute{
			MarkdownDescription: "After how many seconds without clients later endpoints suspend their computes; -1 is " +
				"never, 0 is the installation's default.",
			Optional:   true,
			Validators: []validator.Int64{int64validator.Between(-1, 604800)},
		},
		"max_branch_bytes": limit("Logical size, in bytes, at which a branch takes no more data.", 1),
		"max_wal_bytes_per_second": limit(
			"WAL, in bytes a second, that each compute may write; its commits wait for their turn.", 1<<18),
		"branch_id":   lastingAttribute("Id of the branch that was made with the project."),
		"endpoint_id": lastingAttribute("Id of the endpoint that was made with the project."),
		"pg_version": schema.Int64Attribute{
			MarkdownDescription: "Major version of Postgres.", Computed: true, PlanModifiers: lasting,
		},
		"tenant_id":  lastingAttribute("Id of the project in storage."),
		"proxy_host": lastingAttribute("Host at which the installation's proxy takes clients."),
		"created_at": lastingAttribute("When the project was made."),
	}
}

// show takes over what the API says of a project. What only its making knows, the first branch and its names, stays.
func (m *projectModel) show(ctx context.Context, project *client.Project, diagnostics *diag.Diagnostics) {
	m.ID = types.StringValue(project.ID)
	m.Name = types.StringValue(project.Name)
	m.RegionID = types.StringValue(project.RegionID)
	m.Cell = types.StringValue(project.Cell)
	m.HistoryRetentionSeconds = types.Int64Value(project.HistoryRetentionSeconds)
	m.Tags = mapOf(ctx, m.Tags, project.Tags, diagnostics)
	m.PgSettings = mapOf(ctx, m.PgSettings, project.DefaultEndpointSettings.PgSettings, diagnostics)
	m.SuspendTimeoutSeconds = types.Int64PointerValue(project.DefaultEndpointSettings.SuspendTimeoutSeconds)
	m.MaxBranchBytes = types.Int64Value(project.Settings.Quota.LogicalSizeBytes)
	m.MaxWalBytesPerSecond = types.Int64Value(project.Settings.Quota.WalBytesPerSecond)
	m.PgVersion = types.Int64Value(project.PgVersion)
	m.TenantID = types.StringValue(project.TenantID)
	m.ProxyHost = types.StringValue(project.ProxyHost)
	m.CreatedAt = types.StringValue(project.CreatedAt)
}

// changeable are the fields that a project can be made with and be given later. The API replaces maps as a whole.
func (m *projectModel) changeable(ctx context.Context, diagnostics *diag.Diagnostics) client.Fields {
	defaults := client.Fields{"pg_settings": orEmpty(stringMap(ctx, m.PgSettings, diagnostics))}
	putNumber(defaults, "suspend_timeout_seconds", m.SuspendTimeoutSeconds)
	fields := client.Fields{
		"tags":                      orEmpty(stringMap(ctx, m.Tags, diagnostics)),
		"default_endpoint_settings": defaults,
		"settings": client.Fields{"quota": client.Fields{
			"logical_size_bytes":   m.MaxBranchBytes.ValueInt64(),
			"wal_bytes_per_second": m.MaxWalBytesPerSecond.ValueInt64(),
		}},
	}
	put(fields, "name", m.Name)
	putNumber(fields, "history_retention_seconds", m.HistoryRetentionSeconds)
	return fields
}

func orEmpty(value map[string]string) map[string]string {
	if value == nil {
		return map[string]string{}
	}
	return value
}

func (r *projectResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	plan, well := taken[projectModel](ctx, req.Plan, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, plan.Timeouts.Create, &resp.Diagnostics)
	defer cancel()
	fields := client.Fields{}
	put(fields, "region_id", plan.RegionID)
	put(fields, "cell", plan.Cell)
	first := client.Fields{}
	put(first, "name", plan.BranchName)
	put(first, "role_name", plan.RoleName)
	put(first, "database_name", plan.DatabaseName)
	if len(first) > 0 {
		fields["branch"] = first
	}
	maps.Copy(fields, plan.changeable(ctx, &resp.Diagnostics))
	if resp.Diagnostics.HasError() {
		return
	}
	made, err := r.api.Change(ctx, http.MethodPost, client.Path("projects"), client.Fields{"project": fields})
	if err == nil && (made.Project == nil || made.Branch == nil || len(made.Endpoints) == 0 ||
		len(made.Roles) == 0 || len(made.Databases) == 0) {
		err = fmt.Errorf("the API's answer lacks the project, its branch, endpoint, role or database")
	}
	if err != nil {
		resp.Diagnostics.AddError("Project "+plan.Name.ValueString()+" was not created", err.Error())
		return
	}
	plan.show(ctx, made.Project, &resp.Diagnostics)
	plan.BranchID, plan.BranchName = types.StringValue(made.Branch.ID), types.StringValue(made.Branch.Name)
	plan.EndpointID = types.StringValue(made.Endpoints[0].ID)
	plan.RoleName = types.StringValue(made.Roles[0].Name)
	plan.DatabaseName = types.StringValue(made.Databases[0].Name)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	if err := r.api.Wait(ctx, made.Operations); err != nil {
		resp.Diagnostics.AddError("Project "+plan.Name.ValueString()+" was created and is not ready", err.Error())
	}
}

func (r *projectResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	state, well := taken[projectModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, state.Timeouts.Read, &resp.Diagnostics)
	defer cancel()
	found, err := r.api.Get(ctx, client.Path("projects", state.ID.ValueString()))
	if client.IsNotFound(err) {
		resp.State.RemoveResource(ctx)
		return
	}
	if err == nil && state.BranchID.IsNull() {
		err = r.findFirst(ctx, &state)
	}
	if err != nil {
		resp.Diagnostics.AddError("Project "+state.ID.ValueString()+" cannot be read", err.Error())
		return
	}
	state.show(ctx, found.Project, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
}

// findFirst takes, for a project that was imported, its default branch as the first one, with that branch's endpoint.
func (r *projectResource) findFirst(ctx context.Context, state *projectModel) error {
	branches, err := r.api.Branches(ctx, state.ID.ValueString())
	if err != nil {
		return err
	}
	for _, branch := range branches {
		if !branch.Default {
			continue
		}
		state.BranchID = types.StringValue(branch.ID)
		endpoints, err := r.api.Endpoints(ctx, state.ID.ValueString(), branch.ID)
		if err == nil && len(endpoints) > 0 {
			state.EndpointID = types.StringValue(endpoints[0].ID)
		}
		return err
	}
	return nil
}

func (r *projectResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan, state projectModel
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
	path := client.Path("projects", state.ID.ValueString())
	changed, err := r.api.Change(ctx, http.MethodPatch, path, client.Fields{"project": fields})
	if err == nil {
		err = r.api.Wait(ctx, changed.Operations)
	}
	if err != nil {
		resp.Diagnostics.AddError("Project "+state.ID.ValueString()+" was not changed to the end", err.Error())
		return
	}
	plan.show(ctx, changed.Project, &resp.Diagnostics)
	for _, name := range []*types.String{&plan.BranchName, &plan.RoleName, &plan.DatabaseName, &plan.EndpointID} {
		if name.IsUnknown() {
			*name = types.StringNull()
		}
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *projectResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	state, well := taken[projectModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, state.Timeouts.Delete, &resp.Diagnostics)
	defer cancel()
	if err := r.api.Delete(ctx, client.Path("projects", state.ID.ValueString())); err != nil {
		resp.Diagnostics.AddError("Project "+state.ID.ValueString()+" was not deleted", err.Error())
	}
}

func (r *projectResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	importParts(ctx, req, resp, "id")
}

var _ resource.ResourceWithImportState = &projectResource{}
