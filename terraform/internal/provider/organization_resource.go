package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"weir/terraform-provider-weir/internal/client"
)

type organizationResource struct{ onWeirResource }

type organizationModel struct {
	ID        types.String `tfsdk:"id"`
	Name      types.String `tfsdk:"name"`
	Email     types.String `tfsdk:"email"`
	Owner     types.String `tfsdk:"owner"`
	CreatedAt types.String `tfsdk:"created_at"`
}

func (r *organizationResource) Metadata(
	_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse,
) {
	resp.TypeName = "weir_organization"
}

func (r *organizationResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	lowercase := []validator.String{
		stringvalidator.RegexMatches(smallLetters, "emails are written in small letters here"),
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "An organization, which owns projects and has members. The key has to be of an organization " +
			"that runs the installation (`weir-admin account operator`). That organization is no member of the one it " +
			"makes: what is in it is its owner's. Destroying it ends memberships, and revokes keys and invitations; an " +
			"organization with projects stays, and so does one that runs the installation.",
		Attributes: map[string]schema.Attribute{
			"id":   lastingAttribute("Id of the organization."),
			"name": schema.StringAttribute{MarkdownDescription: "Name of the organization.", Required: true},
			"email": schema.StringAttribute{
				MarkdownDescription: "Whom to write to about the organization, in small letters.",
				Required:            true,
				Validators:          lowercase,
			},
			"owner": schema.StringAttribute{
				MarkdownDescription: "Email, in small letters, of a person whom the installation knows (`weir-admin user " +
					"create`), who becomes the owner. It counts when the organization is made: another value makes another one, and " +
					"one that was made or imported without an owner is given none here. Without an owner nobody is in it before " +
					"`weir-admin user member` adds somebody.",
				Optional:      true,
				PlanModifiers: []planmodifier.String{atBirth()},
				Validators:    lowercase,
			},
			"created_at": lastingAttribute("When the organization was made."),
		},
	}
}

func (m *organizationModel) show(found *client.KeptOrganization) {
	m.ID = types.StringValue(found.ID)
	m.Name = types.StringValue(found.Name)
	m.Email = types.StringValue(found.Email)
	m.CreatedAt = types.StringValue(found.CreatedAt)
}

func (r *organizationResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	plan, well := taken[organizationModel](ctx, req.Plan, &resp.Diagnostics)
	if !well {
		return
	}
	fields := client.Fields{"name": plan.Name.ValueString(), "email": plan.Email.ValueString()}
	put(fields, "owner", plan.Owner)
	made, err := r.api.CreateOrganization(ctx, fields)
	if err != nil {
		resp.Diagnostics.AddError("Organization "+plan.Name.ValueString()+" was not created", err.Error())
		return
	}
	plan.show(made)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *organizationResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	state, well := taken[organizationModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	found, err := r.api.KeptOrganization(ctx, state.ID.ValueString())
	if unread(ctx, resp, err, "Organization "+state.ID.ValueString()+" cannot be read") {
		return
	}
	state.show(found)
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
}

func (r *organizationResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	plan, well := taken[organizationModel](ctx, req.Plan, &resp.Diagnostics)
	if !well {
		return
	}
	state, well := taken[organizationModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	if !plan.Owner.IsNull() && state.Owner.IsNull() {
		resp.Diagnostics.AddAttributeError(path.Root("owner"), "An owner counts when the organization is made",
			"Organization "+state.Name.ValueString()+" was made or imported without an owner, so that "+
				plan.Owner.ValueString()+" does not become one here. Leave owner out, and have an owner or "+
				"`weir-admin user member` add the person.")
		return
	}
	fields := client.Fields{"name": plan.Name.ValueString(), "email": plan.Email.ValueString()}
	changed, err := r.api.ChangeOrganization(ctx, plan.ID.ValueString(), fields)
	if err != nil {
		resp.Diagnostics.AddError("Organization "+plan.ID.ValueString()+" was not changed", err.Error())
		return
	}
	plan.show(changed)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *organizationResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	state, well := taken[organizationModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	if err := r.api.DeleteOrganization(ctx, state.ID.ValueString()); err != nil {
		resp.Diagnostics.AddError("Organization "+state.Name.ValueString()+" was not deleted", err.Error())
	}
}

func (r *organizationResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	resource.ImportStatePassthroughID(ctx, path.Root("id"), req, resp)
}

var _ resource.ResourceWithImportState = &organizationResource{}
