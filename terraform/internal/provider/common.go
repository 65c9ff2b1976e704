package provider

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"weir/terraform-provider-weir/internal/client"
)

// How long changes and their operations may take unless `timeouts` says otherwise.
const defaultTimeout = 20 * time.Minute

// onWeir is what all resources and data sources have in common: the client that the provider was configured with.
type onWeir struct{ api *client.Client }

func (o *onWeir) take(data any) {
	if api, ok := data.(*client.Client); ok {
		o.api = api
	}
}

type onWeirResource struct{ onWeir }

func (r *onWeirResource) Configure(_ context.Context, req resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.take(req.ProviderData)
}

type onWeirDataSource struct{ onWeir }

func (d *onWeirDataSource) Configure(
	_ context.Context, req datasource.ConfigureRequest, _ *datasource.ConfigureResponse,
) {
	d.take(req.ProviderData)
}

// taken reads a plan, a state or a configuration into a model. False where it cannot be read, which the diagnostics say.
func taken[M any](
	ctx context.Context,
	from interface {
		Get(ctx context.Context, target any) diag.Diagnostics
	},
	diagnostics *diag.Diagnostics,
) (M, bool) {
	var model M
	diagnostics.Append(from.Get(ctx, &model)...)
	return model, !diagnostics.HasError()
}

// unread says whether a read found nothing to show: because what the resource stands for has gone, which takes it out of
// the state, or because the API failed, which becomes an error under the title.
func unread(ctx context.Context, resp *resource.ReadResponse, err error, title string) bool {
	if client.IsNotFound(err) {
		resp.State.RemoveResource(ctx)
		return true
	}
	if err != nil {
		resp.Diagnostics.AddError(title, err.Error())
	}
	return err != nil
}

// within bounds a context by what `timeouts` says of one kind of change.
func within(
	ctx context.Context,
	timeout func(context.Context, time.Duration) (time.Duration, diag.Diagnostics),
	diagnostics *diag.Diagnostics,
) (context.Context, context.CancelFunc) {
	limit, problems := timeout(ctx, defaultTimeout)
	diagnostics.Append(problems...)
	return context.WithTimeout(ctx, limit)
}

// importParts reads an import id of the form a/b/c into attributes. Of them a name, which comes last, may have slashes.
func importParts(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse, names ...string,
) {
	parts := strings.SplitN(req.ID, "/", len(names))
	for _, part := range parts {
		if len(parts) != len(names) || part == "" || (names[len(names)-1] != "name" && strings.Contains(part, "/")) {
			resp.Diagnostics.AddError("The import id is not of this kind",
				fmt.Sprintf("%q was given; the id is %s.", req.ID, strings.ToUpper(strings.Join(names, "/"))))
			return
		}
	}
	for i, name := range names {
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root(name), parts[i])...)
	}
}

// sameInstant is the API's time, or the known text where that means the same moment written in another way.
func sameInstant(known types.String, shown *string) types.String {
	if shown == nil {
		return types.StringNull()
	}
	before, err := time.Parse(time.RFC3339Nano, known.ValueString())
	if err == nil {
		if now, err := time.Parse(time.RFC3339Nano, *shown); err == nil && now.Equal(before) {
			return known
		}
	}
	return types.StringValue(*shown)
}

// put adds a field to a request where its value is known and not null.
func put(fields client.Fields, name string, value types.String) {
	if !value.IsNull() && !value.IsUnknown() {
		fields[name] = value.ValueString()
	}
}

func putNumber(fields client.Fields, name string, value types.Int64) {
	if !value.IsNull() && !value.IsUnknown() {
		fields[name] = value.ValueInt64()
	}
}

// stringMap reads a map of texts; nil where it is null or not known.
func stringMap(ctx context.Context, value types.Map, diagnostics *diag.Diagnostics) map[string]string {
	if value.IsNull() || value.IsUnknown() {
		return nil
	}
	read := map[string]string{}
	diagnostics.Append(value.ElementsAs(ctx, &read, false)...)
	return read
}

// mapOf is the API's map as a value; null where it is empty and what was known is null, too.
func mapOf(ctx context.Context, known types.Map, shown map[string]string, diagnostics *diag.Diagnostics) types.Map {
	if len(shown) == 0 && known.IsNull() {
		return types.MapNull(types.StringType)
	}
	if shown == nil {
		shown = map[string]string{}
	}
	value, problems := types.MapValueFrom(ctx, types.StringType, shown)
	diagnostics.Append(problems...)
	return value
}

// fixedAttribute is a required text that a thing cannot change.
func fixedAttribute(about string) schema.StringAttribute {
	return schema.StringAttribute{
		MarkdownDescription: about + " Another value makes another one.",
		Required:            true,
		PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
	}
}

// lastingAttribute is a text that the API chooses once.
func lastingAttribute(about string) schema.StringAttribute {
	return schema.StringAttribute{
		MarkdownDescription: about,
		Computed:            true,
		PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
	}
}

// atBirth makes another thing when the value by which it was made changes. A value that is not known, as after an
// import, is taken as it is given: nothing is replaced only because the configuration says now how it was made.
func atBirth() planmodifier.String {
	return stringplanmodifier.RequiresReplaceIf(
		func(_ context.Context, req planmodifier.StringRequest, resp *stringplanmodifier.RequiresReplaceIfFuncResponse) {
			resp.RequiresReplace = !req.StateValue.IsNull() && !req.ConfigValue.IsNull()
		},
		"Made with this value; another one makes another.",
		"Made with this value; another one makes another.",
	)
}

// birthAttribute is a text that counts when the thing is made.
func birthAttribute(about string) schema.StringAttribute {
	return schema.StringAttribute{
		MarkdownDescription: about + " It counts when it is made: another value makes another one, except after an import.",
		Optional:            true,
		Computed:            true,
		PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown(), atBirth()},
	}
}
