package provider

import (
	"context"
	"regexp"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"weir/terraform-provider-weir/internal/client"
)

// Otherwise the API's email would differ from the configured one at each plan.
var smallLetters = regexp.MustCompile(`^[^A-Z]+$`)

type organizationMemberResource struct{ onWeirResource }

type organizationMemberModel struct {
	ID             types.String `tfsdk:"id"`
	OrganizationID types.String `tfsdk:"organization_id"`
	Email          types.String `tfsdk:"email"`
	Role           types.String `tfsdk:"role"`
	UserID         types.String `tfsdk:"user_id"`
	JoinedAt       types.String `tfsdk:"joined_at"`
}

func (r *organizationMemberResource) Metadata(
	_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse,
) {
	resp.TypeName = "weir_organization_member"
}

func (r *organizationMemberResource) Schema(
	_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse,
) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A person's membership of an organization. The installation has to know the person " +
			"(`weir-admin user create`). The key needs the role admin, and gives no role greater than its own. Destroying " +
			"it takes the person out, and revokes the keys that they made there; the last owner stays.",
		Attributes: map[string]schema.Attribute{
			"id": lastingAttribute("Id of the membership."),
			"organization_id": schema.StringAttribute{
				MarkdownDescription: "Id of the organization; the key's unless given. Another value makes another one.",
				Optional:            true,
				Computed:            true,
				PlanModifiers: []planmodifier.String{
					stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured(),
				},
			},
			"email": schema.StringAttribute{
				MarkdownDescription: "Email by which the installation knows the person, in small letters. Another value " +
					"makes another one.",
				Required:      true,
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
				Validators: []validator.String{
					stringvalidator.RegexMatches(smallLetters, "emails are written in small letters here"),
				},
			},
			"role": schema.StringAttribute{
				MarkdownDescription: "`viewer`, `member`, `admin` or `owner`.",
				Required:            true,
				Validators:          []validator.String{stringvalidator.OneOf("viewer", "member", "admin", "owner")},
			},
			"user_id":   lastingAttribute("Id of the person."),
			"joined_at": lastingAttribute("When the person became a member."),
		},
	}
}

func (m *organizationMemberModel) show(found *client.MemberPerson) {
	m.ID = types.StringValue(found.Member.ID)
	m.OrganizationID = types.StringValue(found.Member.OrgID)
	m.Email = types.StringValue(found.User.Email)
	m.Role = types.StringValue(found.Member.Role)
	m.UserID = types.StringValue(found.Member.UserID)
	m.JoinedAt = types.StringValue(found.Member.JoinedAt)
}

func (r *organizationMemberResource) Create(
	ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse,
) {
	plan, well := taken[organizationMemberModel](ctx, req.Plan, &resp.Diagnostics)
	if !well {
		return
	}
	title := plan.Email.ValueString() + " did not become a member"
	organization := plan.OrganizationID.ValueString()
	if organization == "" {
		own, err := r.api.Organization(ctx, "")
		if err != nil {
			resp.Diagnostics.AddError(title, err.Error())
			return
		}
		organization = own.ID
	}
	made, err := r.api.AddMember(ctx, organization, plan.Email.ValueString(), plan.Role.ValueString())
	if err != nil {
		resp.Diagnostics.AddError(title, err.Error())
		return
	}
	plan.show(made)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *organizationMemberResource) Read(
	ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse,
) {
	state, well := taken[organizationMemberModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	members, err := r.api.Members(ctx, state.OrganizationID.ValueString())
	if unread(ctx, resp, err, "Members of organization "+state.OrganizationID.ValueString()+" cannot be read") {
		return
	}
	for _, member := range members {
		if member.Member.ID == state.ID.ValueString() {
			state.show(&member)
			resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
			return
		}
	}
	resp.State.RemoveResource(ctx)
}

func (r *organizationMemberResource) Update(
	ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse,
) {
	var plan, state organizationMemberModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	organization, member := state.OrganizationID.ValueString(), state.ID.ValueString()
	if err := r.api.ChangeMember(ctx, organization, member, plan.Role.ValueString()); err != nil {
		resp.Diagnostics.AddError(state.Email.ValueString()+" did not get another role", err.Error())
		return
	}
	state.Role = plan.Role
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
}

func (r *organizationMemberResource) Delete(
	ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse,
) {
	state, well := taken[organizationMemberModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	if err := r.api.RemoveMember(ctx, state.OrganizationID.ValueString(), state.ID.ValueString()); err != nil {
		resp.Diagnostics.AddError(state.Email.ValueString()+" is a member still", err.Error())
	}
}

func (r *organizationMemberResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	importParts(ctx, req, resp, "organization_id", "id")
}

var _ resource.ResourceWithImportState = &organizationMemberResource{}
