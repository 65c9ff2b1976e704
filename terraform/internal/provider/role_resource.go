package provider

import (
	"context"
	"net/http"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/boolplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"weir/terraform-provider-weir/internal/client"
)

type roleResource struct{ onWeirResource }

type roleModel struct {
	ID              types.String   `tfsdk:"id"`
	ProjectID       types.String   `tfsdk:"project_id"`
	BranchID        types.String   `tfsdk:"branch_id"`
	Name            types.String   `tfsdk:"name"`
	PasswordVersion types.String   `tfsdk:"password_version"`
	Protected       types.Bool     `tfsdk:"protected"`
	CreatedAt       types.String   `tfsdk:"created_at"`
	Timeouts        timeouts.Value `tfsdk:"timeouts"`
}

func (r *roleResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "weir_role"
}

func (r *roleResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A role of a branch that can log in. Weir chooses its password, which is never in the " +
			"state: the ephemeral resource `weir_connection_uri` reads it where it is needed.",
		Attributes: map[string]schema.Attribute{
			"id":         lastingAttribute("`PROJECT_ID/BRANCH_ID/NAME`."),
			"project_id": fixedAttribute("Id of the project."),
			"branch_id":  fixedAttribute("Id of the branch."),
			"name":       fixedAttribute("Name of the role."),
			"password_version": schema.StringAttribute{
				MarkdownDescription: "Any text. When it changes from one text to another, Weir gives the role a new password.",
				Optional:            true,
			},
			"protected": schema.BoolAttribute{
				MarkdownDescription: "Whether the role is Weir's own.",
				Computed:            true,
				PlanModifiers:       []planmodifier.Bool{boolplanmodifier.UseStateForUnknown()},
			},
			"created_at": lastingAttribute("When the role was made."),
		},
		Blocks: map[string]schema.Block{"timeouts": timeouts.BlockAll(ctx)},
	}
}

func (m *roleModel) show(role *client.Role) {
	m.ID = types.StringValue(m.ProjectID.ValueString() + "/" + role.BranchID + "/" + role.Name)
	m.BranchID = types.StringValue(role.BranchID)
	m.Name = types.StringValue(role.Name)
	m.Protected = types.BoolValue(role.Protected)
	m.CreatedAt = types.StringValue(role.CreatedAt)
}

func (m *roleModel) where(more ...string) string {
	parts := []string{"projects", m.ProjectID.ValueString(), "branches", m.BranchID.ValueString(), "roles"}
	return client.Path(append(parts, more...)...)
}

func (r *roleResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	plan, well := taken[roleModel](ctx, req.Plan, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, plan.Timeouts.Create, &resp.Diagnostics)
	defer cancel()
	body := client.Fields{"role": client.Fields{"name": plan.Name.ValueString()}}
	made, err := r.api.Change(ctx, http.MethodPost, plan.where(), body)
	if err != nil {
		resp.Diagnostics.AddError("Role "+plan.Name.ValueString()+" was not created", err.Error())
		return
	}
	plan.show(made.Role)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	if err := r.api.Wait(ctx, made.Operations); err != nil {
		resp.Diagnostics.AddError("Role "+plan.Name.ValueString()+" was created and is not ready", err.Error())
	}
}

func (r *roleResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	state, well := taken[roleModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, state.Timeouts.Read, &resp.Diagnostics)
	defer cancel()
	found, err := r.api.Get(ctx, state.where(state.Name.ValueString()))
	if unread(ctx, resp, err, "Role "+state.Name.ValueString()+" cannot be read") {
		return
	}
	state.show(found.Role)
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
}

func (r *roleResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan, state roleModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := within(ctx, plan.Timeouts.Update, &resp.Diagnostics)
	defer cancel()
	both := !plan.PasswordVersion.IsNull() && !state.PasswordVersion.IsNull()
	if both && !plan.PasswordVersion.Equal(state.PasswordVersion) {
		path := state.where(state.Name.ValueString(), "reset_password")
		changed, err := r.api.Change(ctx, http.MethodPost, path, nil)
		if err == nil {
			err = r.api.Wait(ctx, changed.Operations)
		}
		if err != nil {
			resp.Diagnostics.AddError("The password of role "+state.Name.ValueString()+" was not reset", err.Error())
			return
		}
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *roleResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	state, well := taken[roleModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, state.Timeouts.Delete, &resp.Diagnostics)
	defer cancel()
	if err := r.api.Delete(ctx, state.where(state.Name.ValueString())); err != nil {
		resp.Diagnostics.AddError("Role "+state.Name.ValueString()+" was not deleted", err.Error())
	}
}

func (r *roleResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	importParts(ctx, req, resp, "project_id", "branch_id", "name")
}

var _ resource.ResourceWithImportState = &roleResource{}
