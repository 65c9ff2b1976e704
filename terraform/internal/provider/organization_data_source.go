package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

type organizationDataSource struct{ onWeirDataSource }

type organizationDataModel struct {
	ID        types.String `tfsdk:"id"`
	Name      types.String `tfsdk:"name"`
	CreatedAt types.String `tfsdk:"created_at"`
	Members   types.Map    `tfsdk:"members"`
}

func (d *organizationDataSource) Metadata(
	_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse,
) {
	resp.TypeName = "weir_organization"
}

func (d *organizationDataSource) Schema(
	_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse,
) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "An organization that the key is of, with its members.",
		Attributes: map[string]schema.Attribute{
			"id":         soughtBy("Id of the organization; the key's unless given."),
			"name":       shown("Name of the organization."),
			"created_at": shown("When the organization was made."),
			"members": schema.MapAttribute{
				MarkdownDescription: "Roles of the members, by email.",
				Computed:            true, ElementType: types.StringType,
			},
		},
	}
}

func (d *organizationDataSource) Read(
	ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse,
) {
	model, well := taken[organizationDataModel](ctx, req.Config, &resp.Diagnostics)
	if !well {
		return
	}
	found, err := d.api.Organization(ctx, model.ID.ValueString())
	if err != nil {
		resp.Diagnostics.AddError("The organization was not found", err.Error())
		return
	}
	members, err := d.api.Members(ctx, found.ID)
	if err != nil {
		resp.Diagnostics.AddError("The organization's members cannot be read", err.Error())
		return
	}
	roles := map[string]string{}
	for _, member := range members {
		roles[member.User.Email] = member.Member.Role
	}
	model = organizationDataModel{
		ID:        types.StringValue(found.ID),
		Name:      types.StringValue(found.Name),
		CreatedAt: types.StringValue(found.CreatedAt),
		Members:   mapOf(ctx, types.MapUnknown(types.StringType), roles, &resp.Diagnostics),
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &model)...)
}
