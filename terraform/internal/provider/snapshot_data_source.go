package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"weir/terraform-provider-weir/internal/client"
)

type snapshotDataSource struct{ onWeirDataSource }

type snapshotDataModel struct {
	ID        types.String `tfsdk:"id"`
	ProjectID types.String `tfsdk:"project_id"`
	Name      types.String `tfsdk:"name"`
	BranchID  types.String `tfsdk:"branch_id"`
	LSN       types.String `tfsdk:"lsn"`
	Timestamp types.String `tfsdk:"timestamp"`
	ExpiresAt types.String `tfsdk:"expires_at"`
	CreatedAt types.String `tfsdk:"created_at"`
	Manual    types.Bool   `tfsdk:"manual"`
	FullSize  types.Int64  `tfsdk:"full_size"`
}

func (d *snapshotDataSource) Metadata(
	_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse,
) {
	resp.TypeName = "weir_snapshot"
}

func (d *snapshotDataSource) Schema(
	_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse,
) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A snapshot that there is: by its id, by its name, or the newest of a branch, which a schedule " +
			"may have taken.",
		Attributes: map[string]schema.Attribute{
			"project_id": schema.StringAttribute{MarkdownDescription: "Id of the project.", Required: true},
			"id":         soughtBy("Id of the snapshot."),
			"name":       soughtBy("Name of the snapshot, which no other of the project has."),
			"branch_id":  soughtBy("Id of the branch that it is of. Without `id` and `name`, its newest snapshot is read."),
			"lsn":        shown("Place in the branch's WAL whose state is kept."),
			"timestamp":  shown("Moment whose state is kept; null where nothing was committed by then."),
			"expires_at": shown("Moment at which Weir deletes the snapshot; null of one that stays."),
			"created_at": shown("When the snapshot was taken."),
			"manual": schema.BoolAttribute{
				MarkdownDescription: "Whether somebody asked for it, and not a schedule.", Computed: true,
			},
			"full_size": schema.Int64Attribute{
				MarkdownDescription: "Bytes of its data; null while storage does not answer.", Computed: true,
			},
		},
	}
}

func (d *snapshotDataSource) find(ctx context.Context, model *snapshotDataModel) (*client.Snapshot, error) {
	given := 0
	for _, value := range []types.String{model.ID, model.Name, model.BranchID} {
		if !value.IsNull() {
			given++
		}
	}
	if given != 1 {
		return nil, errors.New("give `id`, `name` or `branch_id`, one of the three")
	}
	// Newest first.
	all, err := d.api.Snapshots(ctx, model.ProjectID.ValueString())
	if err != nil {
		return nil, err
	}
	if !model.Name.IsNull() {
		return only("snapshot", model.Name.ValueString(), all,
			func(s client.Snapshot) string { return s.Name }, func(s client.Snapshot) string { return s.ID })
	}
	for _, one := range all {
		if one.ID == model.ID.ValueString() {
			return &one, nil
		}
		if model.ID.IsNull() && one.SourceBranchID != nil && *one.SourceBranchID == model.BranchID.ValueString() {
			return &one, nil
		}
	}
	if model.ID.IsNull() {
		return nil, fmt.Errorf("branch %s has no snapshot", model.BranchID.ValueString())
	}
	return nil, fmt.Errorf("there is no snapshot %s; give the id of one that there is", model.ID.ValueString())
}

func (d *snapshotDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	model, well := taken[snapshotDataModel](ctx, req.Config, &resp.Diagnostics)
	if !well {
		return
	}
	found, err := d.find(ctx, &model)
	if err != nil {
		resp.Diagnostics.AddError("The snapshot was not found", err.Error())
		return
	}
	model = snapshotDataModel{
		ID:        types.StringValue(found.ID),
		ProjectID: model.ProjectID,
		Name:      types.StringValue(found.Name),
		BranchID:  types.StringPointerValue(found.SourceBranchID),
		LSN:       types.StringPointerValue(found.LSN),
		Timestamp: types.StringPointerValue(found.Timestamp),
		ExpiresAt: types.StringPointerValue(found.ExpiresAt),
		CreatedAt: types.StringValue(found.CreatedAt),
		Manual:    types.BoolValue(found.Manual),
		FullSize:  types.Int64PointerValue(found.FullSize),
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &model)...)
}
