package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"weir/terraform-provider-weir/internal/client"
)

type snapshotResource struct{ onWeirResource }

type snapshotModel struct {
	ID        types.String   `tfsdk:"id"`
	ProjectID types.String   `tfsdk:"project_id"`
	BranchID  types.String   `tfsdk:"branch_id"`
	Name      types.String   `tfsdk:"name"`
	LSN       types.String   `tfsdk:"lsn"`
	Timestamp types.String   `tfsdk:"timestamp"`
	ExpiresAt types.String   `tfsdk:"expires_at"`
	CreatedAt types.String   `tfsdk:"created_at"`
	Timeouts  timeouts.Value `tfsdk:"timeouts"`
}

func (r *snapshotResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "weir_snapshot"
}

func (r *snapshotResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A state of a branch that is kept for longer than the project keeps history: the newest one, " +
			"or one of the past. Nothing is copied. A branch that has snapshots is not deleted: destroy them before.",
		Attributes: map[string]schema.Attribute{
			"id":         lastingAttribute("Id of the snapshot."),
			"project_id": fixedAttribute("Id of the project."),
			"branch_id":  fixedAttribute("Id of the branch."),
			"name": schema.StringAttribute{
				MarkdownDescription: "Name of the snapshot; the API makes one up unless given.",
				Optional:            true,
				Computed:            true,
				PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"lsn": birthAttribute("Place in the branch's WAL, such as `0/16B3748`, whose state is kept."),
			"timestamp": birthAttribute(
				"Moment (RFC 3339) whose state is kept. Not together with `lsn`."),
			"expires_at": schema.StringAttribute{
				MarkdownDescription: "Moment (RFC 3339) at which Weir deletes the snapshot. The next plan takes another " +
					"one: remove the resource from the configuration before.",
				Optional: true,
			},
			"created_at": lastingAttribute("When the snapshot was taken."),
		},
		Blocks: map[string]schema.Block{"timeouts": timeouts.BlockAll(ctx)},
	}
}

func (r *snapshotResource) ValidateConfig(
	ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse,
) {
	var config snapshotModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if config.LSN.ValueString() != "" && config.Timestamp.ValueString() != "" {
		resp.Diagnostics.AddAttributeError(path.Root("timestamp"), "A snapshot is of one state",
			"`lsn` and `timestamp` are both given; leave one of them out.")
	}
}

// show takes over what the API says of a snapshot. Which state was asked for stays as it is known: the API rounds
// places down to a record. The newest state's place is known once its operation has found it.
func (m *snapshotModel) show(snapshot *client.Snapshot) {
	m.ID = types.StringValue(snapshot.ID)
	m.Name = types.StringValue(snapshot.Name)
	unlessKnown(&m.BranchID, snapshot.SourceBranchID)
	unlessKnown(&m.LSN, snapshot.LSN)
	unlessKnown(&m.Timestamp, snapshot.Timestamp)
	m.ExpiresAt = sameInstant(m.ExpiresAt, snapshot.ExpiresAt)
	m.CreatedAt = types.StringValue(snapshot.CreatedAt)
}

func (r *snapshotResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	plan, well := taken[snapshotModel](ctx, req.Plan, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, plan.Timeouts.Create, &resp.Diagnostics)
	defer cancel()
	project := plan.ProjectID.ValueString()
	taken, operations, err := r.api.TakeSnapshot(ctx, project, plan.BranchID.ValueString(), client.SnapshotWanted{
		Name: plan.Name.ValueString(), LSN: plan.LSN.ValueString(), Timestamp: plan.Timestamp.ValueString(),
		ExpiresAt: plan.ExpiresAt.ValueString(),
	})
	if err != nil {
		resp.Diagnostics.AddError("A snapshot of branch "+plan.BranchID.ValueString()+" was not taken", err.Error())
		return
	}
	// What is not known yet is read again below, or at the next refresh.
	first := plan
	first.show(taken)
	resp.Diagnostics.Append(resp.State.Set(ctx, &first)...)
	if err := r.api.Wait(ctx, operations); err != nil {
		resp.Diagnostics.AddError("Snapshot "+taken.ID+" was begun and is not ready", err.Error())
		return
	}
	found, err := r.api.Snapshot(ctx, project, taken.ID)
	if err != nil || found == nil {
		why := "it is not among the project's snapshots"
		if err != nil {
			why = err.Error()
		}
		resp.Diagnostics.AddError("Snapshot "+taken.ID+" was taken and cannot be read", why)
		return
	}
	plan.show(found)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *snapshotResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	state, well := taken[snapshotModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, state.Timeouts.Read, &resp.Diagnostics)
	defer cancel()
	found, err := r.api.Snapshot(ctx, state.ProjectID.ValueString(), state.ID.ValueString())
	if unread(ctx, resp, err, "Snapshot "+state.ID.ValueString()+" cannot be read") {
		return
	}
	if found == nil {
		resp.State.RemoveResource(ctx)
		return
	}
	state.show(found)
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
}

func (r *snapshotResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan, state snapshotModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := within(ctx, plan.Timeouts.Update, &resp.Diagnostics)
	defer cancel()
	fields := client.Fields{}
	put(fields, "name", plan.Name)
	if !plan.ExpiresAt.Equal(state.ExpiresAt) {
		fields["expires_at"] = plan.ExpiresAt.ValueStringPointer()
	}
	changed, err := r.api.ChangeSnapshot(ctx, state.ProjectID.ValueString(), state.ID.ValueString(), fields)
	if err != nil {
		resp.Diagnostics.AddError("Snapshot "+state.ID.ValueString()+" was not changed", err.Error())
		return
	}
	plan.show(changed)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *snapshotResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	state, well := taken[snapshotModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, state.Timeouts.Delete, &resp.Diagnostics)
	defer cancel()
	where := client.Path("projects", state.ProjectID.ValueString(), "snapshots", state.ID.ValueString())
	if err := r.api.Delete(ctx, where); err != nil {
		resp.Diagnostics.AddError("Snapshot "+state.ID.ValueString()+" was not deleted", err.Error())
	}
}

func (r *snapshotResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	importParts(ctx, req, resp, "project_id", "id")
}

var (
	_ resource.ResourceWithImportState    = &snapshotResource{}
	_ resource.ResourceWithValidateConfig = &snapshotResource{}
)
