package provider

import (
	"context"
	"net/http"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"weir/terraform-provider-weir/internal/client"
)

type branchResource struct{ onWeirResource }

type branchModel struct {
	ID              types.String   `tfsdk:"id"`
	ProjectID       types.String   `tfsdk:"project_id"`
	Name            types.String   `tfsdk:"name"`
	ParentID        types.String   `tfsdk:"parent_id"`
	ParentLSN       types.String   `tfsdk:"parent_lsn"`
	ParentTimestamp types.String   `tfsdk:"parent_timestamp"`
	Protected       types.Bool     `tfsdk:"protected"`
	ExpiresAt       types.String   `tfsdk:"expires_at"`
	Durability      types.String   `tfsdk:"durability"`
	TimelineID      types.String   `tfsdk:"timeline_id"`
	CreatedAt       types.String   `tfsdk:"created_at"`
	Timeouts        timeouts.Value `tfsdk:"timeouts"`
}

func (r *branchResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "weir_branch"
}

func (r *branchResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A branch of another branch's state, newest or past. Nothing is copied. Roles and " +
			"databases, with their passwords, are the parent's. A branch has no compute until a `weir_endpoint` is made.",
		Attributes: map[string]schema.Attribute{
			"id":         lastingAttribute("Id of the branch."),
			"project_id": fixedAttribute("Id of the project."),
			"name":       schema.StringAttribute{MarkdownDescription: "Name of the branch.", Required: true},
			"parent_id":  birthAttribute("Id of the branch that this one is made of; the project's default branch unless given."),
			"parent_lsn": birthAttribute("Place in the parent's WAL, such as `0/16B3748`, whose state the branch has."),
			"parent_timestamp": birthAttribute(
				"Moment (RFC 3339) whose state of the parent the branch has. Not together with `parent_lsn`."),
			"protected": schema.BoolAttribute{
				MarkdownDescription: "A protected branch is not deleted: set false and apply before destroying it.",
				Optional:            true,
				Computed:            true,
				Default:             booldefault.StaticBool(false),
			},
			"expires_at": schema.StringAttribute{
				MarkdownDescription: "Moment (RFC 3339) at which Weir deletes the branch. The next plan makes it again: " +
					"remove the resource from the configuration before.",
				Optional: true,
			},
			"durability": schema.StringAttribute{
				MarkdownDescription: "What commits wait for unless their session says otherwise: `off`, `receive`, `flush` " +
					"or `apply`. The parent's unless given.",
				Optional:      true,
				Computed:      true,
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
				Validators:    []validator.String{stringvalidator.OneOf("off", "receive", "flush", "apply")},
			},
			"timeline_id": schema.StringAttribute{
				MarkdownDescription: "Id of the branch in storage. A restore gives the branch another.", Computed: true,
			},
			"created_at": lastingAttribute("When the branch was made."),
		},
		Blocks: map[string]schema.Block{"timeouts": timeouts.BlockAll(ctx)},
	}
}

func (r *branchResource) ValidateConfig(
	ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse,
) {
	var config branchModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if config.ParentLSN.ValueString() != "" && config.ParentTimestamp.ValueString() != "" {
		resp.Diagnostics.AddAttributeError(path.Root("parent_timestamp"), "A branch begins at one place",
			"`parent_lsn` and `parent_timestamp` are both given; leave one of them out.")
	}
}

// show takes over what the API says of a branch. How the branch was made stays as it is known: the API rounds places
// down to a record, and forgets the parent of a branch that was detached.
func (m *branchModel) show(branch *client.Branch) {
	m.ID = types.StringValue(branch.ID)
	m.ProjectID = types.StringValue(branch.ProjectID)
	m.Name = types.StringValue(branch.Name)
	unlessKnown(&m.ParentID, branch.ParentID)
	unlessKnown(&m.ParentLSN, branch.ParentLSN)
	unlessKnown(&m.ParentTimestamp, branch.ParentTimestamp)
	m.Protected = types.BoolValue(branch.Protected)
	m.ExpiresAt = sameInstant(m.ExpiresAt, branch.ExpiresAt)
	m.Durability = types.StringValue(branch.Durability)
	m.TimelineID = types.StringValue(branch.TimelineID)
	m.CreatedAt = types.StringValue(branch.CreatedAt)
}

func unlessKnown(known *types.String, shown *string) {
	if known.IsNull() || known.IsUnknown() {
		*known = types.StringPointerValue(shown)
	}
}

func (m *branchModel) where() string {
	return client.Path("projects", m.ProjectID.ValueString(), "branches", m.ID.ValueString())
}

func (r *branchResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	plan, well := taken[branchModel](ctx, req.Plan, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, plan.Timeouts.Create, &resp.Diagnostics)
	defer cancel()
	fields := client.Fields{"protected": plan.Protected.ValueBool()}
	put(fields, "name", plan.Name)
	put(fields, "parent_id", plan.ParentID)
	put(fields, "parent_lsn", plan.ParentLSN)
	put(fields, "parent_timestamp", plan.ParentTimestamp)
	put(fields, "expires_at", plan.ExpiresAt)
	put(fields, "durability", plan.Durability)
	made, err := r.api.Change(ctx, http.MethodPost,
		client.Path("projects", plan.ProjectID.ValueString(), "branches"), client.Fields{"branch": fields})
	if err != nil {
		resp.Diagnostics.AddError("Branch "+plan.Name.ValueString()+" was not created", err.Error())
		return
	}
	plan.show(made.Branch)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	if err := r.api.Wait(ctx, made.Operations); err != nil {
		resp.Diagnostics.AddError("Branch "+plan.Name.ValueString()+" was created and is not ready", err.Error())
	}
}

func (r *branchResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	state, well := taken[branchModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, state.Timeouts.Read, &resp.Diagnostics)
	defer cancel()
	found, err := r.api.Get(ctx, state.where())
	if unread(ctx, resp, err, "Branch "+state.ID.ValueString()+" cannot be read") {
		return
	}
	state.show(found.Branch)
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
}

func (r *branchResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan, state branchModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := within(ctx, plan.Timeouts.Update, &resp.Diagnostics)
	defer cancel()
	fields := client.Fields{"protected": plan.Protected.ValueBool()}
	put(fields, "name", plan.Name)
	put(fields, "durability", plan.Durability)
	if !plan.ExpiresAt.Equal(state.ExpiresAt) {
		fields["expires_at"] = plan.ExpiresAt.ValueStringPointer()
	}
	changed, err := r.api.Change(ctx, http.MethodPatch, state.where(), client.Fields{"branch": fields})
	if err == nil {
		err = r.api.Wait(ctx, changed.Operations)
	}
	if err != nil {
		resp.Diagnostics.AddError("Branch "+state.ID.ValueString()+" was not changed to the end", err.Error())
		return
	}
	plan.show(changed.Branch)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *branchResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	state, well := taken[branchModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, state.Timeouts.Delete, &resp.Diagnostics)
	defer cancel()
	if err := r.api.Delete(ctx, state.where()); err != nil {
		resp.Diagnostics.AddError("Branch "+state.ID.ValueString()+" was not deleted", err.Error())
	}
}

func (r *branchResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	importParts(ctx, req, resp, "project_id", "id")
}

var (
	_ resource.ResourceWithImportState    = &branchResource{}
	_ resource.ResourceWithValidateConfig = &branchResource{}
)
