package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"weir/terraform-provider-weir/internal/client"
)

func shown(about string) schema.Attribute {
	return schema.StringAttribute{MarkdownDescription: about, Computed: true}
}

func soughtBy(about string) schema.Attribute {
	return schema.StringAttribute{MarkdownDescription: about, Optional: true, Computed: true}
}

// only picks the one row with this name. No row and several rows are errors that say so.
func only[T any](kind, name string, rows []T, nameOf, idOf func(T) string) (*T, error) {
	var found []T
	for _, row := range rows {
		if nameOf(row) == name {
			found = append(found, row)
		}
	}
	switch len(found) {
	case 1:
		return &found[0], nil
	case 0:
		return nil, fmt.Errorf("there is no %s named %q; give the name of one that there is, or its id", kind, name)
	}
	ids := make([]string, len(found))
	for i, row := range found {
		ids[i] = idOf(row)
	}
	return nil, fmt.Errorf("%d of kind %s are named %q; give one's id: %s", len(found), kind, name, strings.Join(ids, ", "))
}

type projectDataSource struct{ onWeirDataSource }

type projectDataModel struct {
	ID                      types.String `tfsdk:"id"`
	Name                    types.String `tfsdk:"name"`
	RegionID                types.String `tfsdk:"region_id"`
	Cell                    types.String `tfsdk:"cell"`
	HistoryRetentionSeconds types.Int64  `tfsdk:"history_retention_seconds"`
	Tags                    types.Map    `tfsdk:"tags"`
	PgVersion               types.Int64  `tfsdk:"pg_version"`
	TenantID                types.String `tfsdk:"tenant_id"`
	OwnerID                 types.String `tfsdk:"owner_id"`
	ProxyHost               types.String `tfsdk:"proxy_host"`
	CreatedAt               types.String `tfsdk:"created_at"`
}

func (d *projectDataSource) Metadata(
	_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse,
) {
	resp.TypeName = "weir_project"
}

func (d *projectDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A project that there is, found by its id or its name.",
		Attributes: map[string]schema.Attribute{
			"id":        soughtBy("Id of the project. Either this or `name`."),
			"name":      soughtBy("Name of the project, which no other has. Either this or `id`."),
			"region_id": shown("Region of the project."),
			"cell":      shown("Cell in which the project's computes run."),
			"history_retention_seconds": schema.Int64Attribute{
				MarkdownDescription: "For how long past states can be read, in seconds.", Computed: true,
			},
			"tags": schema.MapAttribute{
				MarkdownDescription: "Labels by which a rollout's selector can choose the project.",
				Computed:            true, ElementType: types.StringType,
			},
			"pg_version": schema.Int64Attribute{MarkdownDescription: "Major version of Postgres.", Computed: true},
			"tenant_id":  shown("Id of the project in storage."),
			"owner_id":   shown("Account that owns the project."),
			"proxy_host": shown("Host at which the installation's proxy takes clients."),
			"created_at": shown("When the project was made."),
		},
	}
}

func (d *projectDataSource) find(ctx context.Context, id, name types.String) (*client.Project, error) {
	switch {
	case id.IsNull() == name.IsNull():
		return nil, errors.New("give `id` or `name`, one of the two")
	case !id.IsNull():
		found, err := d.api.Get(ctx, client.Path("projects", id.ValueString()))
		if err != nil {
			return nil, err
		}
		return found.Project, nil
	}
	projects, err := d.api.Projects(ctx)
	if err != nil {
		return nil, err
	}
	return only("project", name.ValueString(), projects,
		func(p client.Project) string { return p.Name }, func(p client.Project) string { return p.ID })
}

func (d *projectDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	model, well := taken[projectDataModel](ctx, req.Config, &resp.Diagnostics)
	if !well {
		return
	}
	project, err := d.find(ctx, model.ID, model.Name)
	if err != nil {
		resp.Diagnostics.AddError("The project was not found", err.Error())
		return
	}
	model = projectDataModel{
		ID:                      types.StringValue(project.ID),
		Name:                    types.StringValue(project.Name),
		RegionID:                types.StringValue(project.RegionID),
		Cell:                    types.StringValue(project.Cell),
		HistoryRetentionSeconds: types.Int64Value(project.HistoryRetentionSeconds),
		Tags:                    mapOf(ctx, types.MapUnknown(types.StringType), project.Tags, &resp.Diagnostics),
		PgVersion:               types.Int64Value(project.PgVersion),
		TenantID:                types.StringValue(project.TenantID),
		OwnerID:                 types.StringValue(project.OwnerID),
		ProxyHost:               types.StringValue(project.ProxyHost),
		CreatedAt:               types.StringValue(project.CreatedAt),
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &model)...)
}

type branchDataSource struct{ onWeirDataSource }

type branchDataModel struct {
	ID         types.String `tfsdk:"id"`
	ProjectID  types.String `tfsdk:"project_id"`
	Name       types.String `tfsdk:"name"`
	ParentID   types.String `tfsdk:"parent_id"`
	ParentLSN  types.String `tfsdk:"parent_lsn"`
	Default    types.Bool   `tfsdk:"default"`
	Protected  types.Bool   `tfsdk:"protected"`
	ExpiresAt  types.String `tfsdk:"expires_at"`
	Durability types.String `tfsdk:"durability"`
	TimelineID types.String `tfsdk:"timeline_id"`
	EndpointID types.String `tfsdk:"endpoint_id"`
	CreatedAt  types.String `tfsdk:"created_at"`
}

func (d *branchDataSource) Metadata(
	_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse,
) {
	resp.TypeName = "weir_branch"
}

func (d *branchDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A branch that there is: by its id, by its name, or the project's default branch.",
		Attributes: map[string]schema.Attribute{
			"project_id": schema.StringAttribute{MarkdownDescription: "Id of the project.", Required: true},
			"id":         soughtBy("Id of the branch. Without this and `name`, the default branch is read."),
			"name":       soughtBy("Name of the branch."),
			"parent_id":  shown("Id of the branch that this one is made of; null of a first branch."),
			"parent_lsn": shown("Place in the parent's WAL at which the branch begins."),
			"default": schema.BoolAttribute{
				MarkdownDescription: "Whether it is the project's default branch.", Computed: true,
			},
			"protected": schema.BoolAttribute{
				MarkdownDescription: "Whether it is kept from being deleted.", Computed: true,
			},
			"expires_at":  shown("Moment at which Weir deletes the branch; null of one that stays."),
			"durability":  shown("What commits wait for unless their session says otherwise."),
			"timeline_id": shown("Id of the branch in storage."),
			"endpoint_id": shown("Id of the branch's endpoint; null where it has none."),
			"created_at":  shown("When the branch was made."),
		},
	}
}

func (d *branchDataSource) find(ctx context.Context, model *branchDataModel) (*client.Branch, error) {
	project := model.ProjectID.ValueString()
	if !model.ID.IsNull() {
		if !model.Name.IsNull() {
			return nil, errors.New("`id` and `name` are both given; leave one of them out")
		}
		found, err := d.api.Get(ctx, client.Path("projects", project, "branches", model.ID.ValueString()))
		if err != nil {
			return nil, err
		}
		return found.Branch, nil
	}
	branches, err := d.api.Branches(ctx, project)
	if err != nil {
		return nil, err
	}
	if !model.Name.IsNull() {
		return only("branch", model.Name.ValueString(), branches,
			func(b client.Branch) string { return b.Name }, func(b client.Branch) string { return b.ID })
	}
	for _, branch := range branches {
		if branch.Default {
			return &branch, nil
		}
	}
	return nil, fmt.Errorf("project %s has no default branch", project)
}

func (d *branchDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	model, well := taken[branchDataModel](ctx, req.Config, &resp.Diagnostics)
	if !well {
		return
	}
	branch, err := d.find(ctx, &model)
	var endpoints []client.Endpoint
	if err == nil {
		endpoints, err = d.api.Endpoints(ctx, branch.ProjectID, branch.ID)
	}
	if err != nil {
		resp.Diagnostics.AddError("The branch was not found", err.Error())
		return
	}
	model = branchDataModel{
		ID:         types.StringValue(branch.ID),
		ProjectID:  types.StringValue(branch.ProjectID),
		Name:       types.StringValue(branch.Name),
		ParentID:   types.StringPointerValue(branch.ParentID),
		ParentLSN:  types.StringPointerValue(branch.ParentLSN),
		Default:    types.BoolValue(branch.Default),
		Protected:  types.BoolValue(branch.Protected),
		ExpiresAt:  types.StringPointerValue(branch.ExpiresAt),
		Durability: types.StringValue(branch.Durability),
		TimelineID: types.StringValue(branch.TimelineID),
		CreatedAt:  types.StringValue(branch.CreatedAt),
	}
	if len(endpoints) > 0 {
		model.EndpointID = types.StringValue(endpoints[0].ID)
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &model)...)
}
