package provider

import (
	"context"
	"net/http"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"weir/terraform-provider-weir/internal/client"
)

type databaseResource struct{ onWeirResource }

type databaseModel struct {
	ID        types.String   `tfsdk:"id"`
	ProjectID types.String   `tfsdk:"project_id"`
	BranchID  types.String   `tfsdk:"branch_id"`
	Name      types.String   `tfsdk:"name"`
	OwnerName types.String   `tfsdk:"owner_name"`
	CreatedAt types.String   `tfsdk:"created_at"`
	Timeouts  timeouts.Value `tfsdk:"timeouts"`
}

func (r *databaseResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "weir_database"
}

func (r *databaseResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A database of a branch. Destroying it drops it with all that is in it.",
		Attributes: map[string]schema.Attribute{
			"id":         lastingAttribute("`PROJECT_ID/BRANCH_ID/NAME`."),
			"project_id": fixedAttribute("Id of the project."),
			"branch_id":  fixedAttribute("Id of the branch."),
			"name":       fixedAttribute("Name of the database."),
			"owner_name": schema.StringAttribute{
				MarkdownDescription: "Name of the role that owns the database.", Required: true,
			},
			"created_at": lastingAttribute("When the database was made."),
		},
		Blocks: map[string]schema.Block{"timeouts": timeouts.BlockAll(ctx)},
	}
}

func (m *databaseModel) show(database *client.Database) {
	m.ID = types.StringValue(m.ProjectID.ValueString() + "/" + database.BranchID + "/" + database.Name)
	m.BranchID = types.StringValue(database.BranchID)
	m.Name = types.StringValue(database.Name)
	m.OwnerName = types.StringValue(database.OwnerName)
	m.CreatedAt = types.StringValue(database.CreatedAt)
}

func (m *databaseModel) where(more ...string) string {
	parts := []string{"projects", m.ProjectID.ValueString(), "branches", m.BranchID.ValueString(), "databases"}
	return client.Path(append(parts, more...)...)
}

func (r *databaseResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	plan, well := taken[databaseModel](ctx, req.Plan, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, plan.Timeouts.Create, &resp.Diagnostics)
	defer cancel()
	fields := client.Fields{"name": plan.Name.ValueString(), "owner_name": plan.OwnerName.ValueString()}
	made, err := r.api.Change(ctx, http.MethodPost, plan.where(), client.Fields{"database": fields})
	if err != nil {
		resp.Diagnostics.AddError("Database "+plan.Name.ValueString()+" was not created", err.Error())
		return
	}
	plan.show(made.Database)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	if err := r.api.Wait(ctx, made.Operations); err != nil {
		resp.Diagnostics.AddError("Database "+plan.Name.ValueString()+" was created and is not ready", err.Error())
	}
}

func (r *databaseResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	state, well := taken[databaseModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, state.Timeouts.Read, &resp.Diagnostics)
	defer cancel()
	found, err := r.api.Get(ctx, state.where(state.Name.ValueString()))
	if unread(ctx, resp, err, "Database "+state.Name.ValueString()+" cannot be read") {
		return
	}
	state.show(found.Database)
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
}

func (r *databaseResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	plan, well := taken[databaseModel](ctx, req.Plan, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, plan.Timeouts.Update, &resp.Diagnostics)
	defer cancel()
	body := client.Fields{"database": client.Fields{"owner_name": plan.OwnerName.ValueString()}}
	changed, err := r.api.Change(ctx, http.MethodPatch, plan.where(plan.Name.ValueString()), body)
	if err == nil {
		err = r.api.Wait(ctx, changed.Operations)
	}
	if err != nil {
		resp.Diagnostics.AddError("Database "+plan.Name.ValueString()+" was not changed to the end", err.Error())
		return
	}
	plan.show(changed.Database)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *databaseResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	state, well := taken[databaseModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, state.Timeouts.Delete, &resp.Diagnostics)
	defer cancel()
	if err := r.api.Delete(ctx, state.where(state.Name.ValueString())); err != nil {
		resp.Diagnostics.AddError("Database "+state.Name.ValueString()+" was not deleted", err.Error())
	}
}

func (r *databaseResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	importParts(ctx, req, resp, "project_id", "branch_id", "name")
}

var _ resource.ResourceWithImportState = &databaseResource{}
