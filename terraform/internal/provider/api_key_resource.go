package provider

import (
	"context"
	"fmt"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

type apiKeyResource struct{ onWeirResource }

type apiKeyModel struct {
	ID        types.String `tfsdk:"id"`
	Name      types.String `tfsdk:"name"`
	Key       types.String `tfsdk:"key"`
	CreatedAt types.String `tfsdk:"created_at"`
}

func (r *apiKeyResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "weir_api_key"
}

func (r *apiKeyResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A key of the account whose key the provider uses. The API tells a key once, when it is " +
			"made, so the state keeps it: encrypt the state. Destroying the resource revokes the key.",
		Attributes: map[string]schema.Attribute{
			"id":   lastingAttribute("Id of the key."),
			"name": fixedAttribute("Name of the key."),
			"key": schema.StringAttribute{
				MarkdownDescription: "The key itself; null after an import.",
				Computed:            true,
				Sensitive:           true,
				PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"created_at": lastingAttribute("When the key was made."),
		},
	}
}

func (r *apiKeyResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	plan, well := taken[apiKeyModel](ctx, req.Plan, &resp.Diagnostics)
	if !well {
		return
	}
	made, err := r.api.CreateAPIKey(ctx, plan.Name.ValueString())
	if err != nil {
		resp.Diagnostics.AddError("API key "+plan.Name.ValueString()+" was not created", err.Error())
		return
	}
	plan.ID = types.StringValue(strconv.FormatInt(made.ID, 10))
	plan.Key = types.StringValue(made.Key)
	plan.CreatedAt = types.StringValue(made.CreatedAt)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *apiKeyResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	state, well := taken[apiKeyModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	keys, err := r.api.APIKeys(ctx)
	if err != nil {
		resp.Diagnostics.AddError("The account's API keys cannot be read", err.Error())
		return
	}
	for _, key := range keys {
		if strconv.FormatInt(key.ID, 10) == state.ID.ValueString() {
			state.Name, state.CreatedAt = types.StringValue(key.Name), types.StringValue(key.CreatedAt)
			resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
			return
		}
	}
	resp.State.RemoveResource(ctx)
}

// Update is never asked for: a key's name makes another key.
func (r *apiKeyResource) Update(_ context.Context, _ resource.UpdateRequest, resp *resource.UpdateResponse) {
	resp.Diagnostics.AddError("An API key cannot be changed", "Destroy it, and make another one.")
}

func (r *apiKeyResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	state, well := taken[apiKeyModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	id, err := strconv.ParseInt(state.ID.ValueString(), 10, 64)
	if err == nil {
		err = r.api.RevokeAPIKey(ctx, id)
	}
	if err != nil {
		resp.Diagnostics.AddError("API key "+state.Name.ValueString()+" was not revoked", err.Error())
	}
}

func (r *apiKeyResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	if _, err := strconv.ParseInt(req.ID, 10, 64); err != nil {
		resp.Diagnostics.AddError("The import id is not of this kind",
			fmt.Sprintf("%q was given; the id is the key's number, which GET /api_keys lists.", req.ID))
		return
	}
	resource.ImportStatePassthroughID(ctx, path.Root("id"), req, resp)
}

var _ resource.ResourceWithImportState = &apiKeyResource{}
