package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"weir/terraform-provider-weir/internal/client"
)

// For how long scheduled snapshots are kept unless the schedule says less, and the most that it can say.
const longestRetention = 35 * 86400

type snapshotScheduleResource struct{ onWeirResource }

type snapshotScheduleModel struct {
	ID        types.String           `tfsdk:"id"`
	ProjectID types.String           `tfsdk:"project_id"`
	BranchID  types.String           `tfsdk:"branch_id"`
	Snapshots []snapshotScheduleItem `tfsdk:"snapshots"`
}

type snapshotScheduleItem struct {
	Frequency        types.String `tfsdk:"frequency"`
	Hour             types.Int64  `tfsdk:"hour"`
	Day              types.Int64  `tfsdk:"day"`
	RetentionSeconds types.Int64  `tfsdk:"retention_seconds"`
}

func (r *snapshotScheduleResource) Metadata(
	_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse,
) {
	resp.TypeName = "weir_snapshot_schedule"
}

func (r *snapshotScheduleResource) Schema(
	_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse,
) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "When snapshots of a branch are taken by themselves. A branch has one schedule: the resource " +
			"replaces whatever there is. Destroying it ends the schedule; snapshots that were taken stay until they expire.",
		Attributes: map[string]schema.Attribute{
			"id":         lastingAttribute("`PROJECT_ID/BRANCH_ID`."),
			"project_id": fixedAttribute("Id of the project."),
			"branch_id":  fixedAttribute("Id of the branch."),
			"snapshots": schema.ListNestedAttribute{
				MarkdownDescription: "When; entries that fall together give one snapshot.",
				Required:            true,
				Validators:          []validator.List{listvalidator.SizeBetween(1, 12)},
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"frequency": schema.StringAttribute{
						MarkdownDescription: "`hourly`, `daily`, `weekly` or `monthly`.",
						Required:            true,
						Validators:          []validator.String{stringvalidator.OneOf("hourly", "daily", "weekly", "monthly")},
					},
					"hour": schema.Int64Attribute{
						MarkdownDescription: "Hour of the day, UTC; 0 unless given. Not of `hourly`.",
						Optional:            true,
						Validators:          []validator.Int64{int64validator.Between(0, 23)},
					},
					"day": schema.Int64Attribute{
						MarkdownDescription: "Day of the week, 1 for Monday to 7, or of the month, where a month without it " +
							"takes its last day; the first unless given. Of `weekly` and `monthly` alone.",
						Optional:   true,
						Validators: []validator.Int64{int64validator.Between(1, 31)},
					},
					"retention_seconds": schema.Int64Attribute{
						MarkdownDescription: "For how long each snapshot is kept: an hour to 35 days, which is usual.",
						Optional:            true,
						Computed:            true,
						Default:             int64default.StaticInt64(longestRetention),
						Validators:          []validator.Int64{int64validator.Between(3600, longestRetention)},
					},
				}},
			},
		},
	}
}

func (m *snapshotScheduleModel) wanted() []client.ScheduleItem {
	items := make([]client.ScheduleItem, len(m.Snapshots))
	for i, one := range m.Snapshots {
		items[i] = client.ScheduleItem{
			Frequency: one.Frequency.ValueString(), Hour: one.Hour.ValueInt64Pointer(), Day: one.Day.ValueInt64Pointer(),
			RetentionSeconds: one.RetentionSeconds.ValueInt64Pointer(),
		}
	}
	return items
}

// show takes over a schedule as the API has it. What was left out and is as usual stays left out.
func (m *snapshotScheduleModel) show(schedule []client.ScheduleItem) {
	m.ID = types.StringValue(m.ProjectID.ValueString() + "/" + m.BranchID.ValueString())
	before := m.Snapshots
	m.Snapshots = make([]snapshotScheduleItem, len(schedule))
	for i, item := range schedule {
		shown := snapshotScheduleItem{
			Frequency: types.StringValue(item.Frequency), Hour: types.Int64PointerValue(item.Hour),
			Day: types.Int64PointerValue(item.Day), RetentionSeconds: types.Int64PointerValue(item.RetentionSeconds),
		}
		if i < len(before) && before[i].Frequency.Equal(shown.Frequency) {
			shown.Hour = leftOut(before[i].Hour, shown.Hour, 0)
			shown.Day = leftOut(before[i].Day, shown.Day, 1)
		}
		m.Snapshots[i] = shown
	}
}

func leftOut(known, shown types.Int64, usual int64) types.Int64 {
	if known.IsNull() && shown.ValueInt64() == usual {
		return known
	}
	return shown
}

func (r *snapshotScheduleResource) set(ctx context.Context, plan *snapshotScheduleModel) error {
	project, branch := plan.ProjectID.ValueString(), plan.BranchID.ValueString()
	if err := r.api.SetSchedule(ctx, project, branch, plan.wanted()); err != nil {
		return err
	}
	schedule, err := r.api.Schedule(ctx, project, branch)
	if err == nil {
		plan.show(schedule)
	}
	return err
}

func (r *snapshotScheduleResource) Create(
	ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse,
) {
	plan, well := taken[snapshotScheduleModel](ctx, req.Plan, &resp.Diagnostics)
	if !well {
		return
	}
	if err := r.set(ctx, &plan); err != nil {
		resp.Diagnostics.AddError("Branch "+plan.BranchID.ValueString()+" got no schedule", err.Error())
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *snapshotScheduleResource) Read(
	ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse,
) {
	state, well := taken[snapshotScheduleModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	schedule, err := r.api.Schedule(ctx, state.ProjectID.ValueString(), state.BranchID.ValueString())
	if unread(ctx, resp, err, "The schedule of branch "+state.BranchID.ValueString()+" cannot be read") {
		return
	}
	if len(schedule) == 0 {
		resp.State.RemoveResource(ctx)
		return
	}
	state.show(schedule)
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
}

func (r *snapshotScheduleResource) Update(
	ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse,
) {
	plan, well := taken[snapshotScheduleModel](ctx, req.Plan, &resp.Diagnostics)
	if !well {
		return
	}
	if err := r.set(ctx, &plan); err != nil {
		resp.Diagnostics.AddError("The schedule of branch "+plan.BranchID.ValueString()+" was not changed", err.Error())
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *snapshotScheduleResource) Delete(
	ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse,
) {
	state, well := taken[snapshotScheduleModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	err := r.api.SetSchedule(ctx, state.ProjectID.ValueString(), state.BranchID.ValueString(), nil)
	if err != nil && !client.IsNotFound(err) {
		resp.Diagnostics.AddError("The schedule of branch "+state.BranchID.ValueString()+" was not ended", err.Error())
	}
}

func (r *snapshotScheduleResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	importParts(ctx, req, resp, "project_id", "branch_id")
}

var _ resource.ResourceWithImportState = &snapshotScheduleResource{}
