// Package provider is what OpenTofu and Terraform see of Weir: its resources, data sources and ephemeral resources.
package provider

import (
	"context"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"weir/terraform-provider-weir/internal/client"
)

const (
	urlVariable = "WEIR_API_URL"
	keyVariable = "WEIR_API_KEY"
)

type weirProvider struct{ version string }

type providerModel struct {
	APIURL types.String `tfsdk:"api_url"`
	APIKey types.String `tfsdk:"api_key"`
}

// New returns what makes a provider of this version.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &weirProvider{version} }
}

func (p *weirProvider) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = "weir"
	resp.Version = p.version
}

func (p *weirProvider) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Organizations, projects, branches, computes, roles, databases, snapshots, keys, members and " +
			"rollouts of a Weir, kept as configuration. The provider speaks Weir's public API.",
		Attributes: map[string]schema.Attribute{
			"api_url": schema.StringAttribute{
				MarkdownDescription: "Address of the API, such as `https://weir.example.com`. `" + urlVariable +
					"` in the environment unless given.",
				Optional: true,
			},
			"api_key": schema.StringAttribute{
				MarkdownDescription: "Key of an account. `" + keyVariable + "` in the environment unless given, " +
					"which keeps the key out of files.",
				Optional:  true,
				Sensitive: true,
			},
		},
	}
}

func (p *weirProvider) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var config providerModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	given := func(name string, value types.String, variable string) string {
		if value.IsUnknown() {
			resp.Diagnostics.AddAttributeError(path.Root(name), "The provider's "+name+" is not known yet",
				"Its value comes from a resource that is not there yet. Apply that resource first, with -target, or "+
					"give the value in "+variable+".")
			return ""
		}
		text := value.ValueString()
		if value.IsNull() {
			text = os.Getenv(variable)
		}
		if text == "" && !resp.Diagnostics.HasError() {
			resp.Diagnostics.AddAttributeError(path.Root(name), "The provider's "+name+" is missing",
				"Set "+name+" in the provider's configuration, or "+variable+" in the environment.")
		}
		return text
	}
	address, key := given("api_url", config.APIURL, urlVariable), given("api_key", config.APIKey, keyVariable)
	if resp.Diagnostics.HasError() {
		return
	}
	api, err := client.New(address, key, "terraform-provider-weir/"+p.version, client.DefaultPace)
	if err != nil {
		resp.Diagnostics.AddAttributeError(path.Root("api_url"), "The API cannot be reached", err.Error())
		return
	}
	if api.Exposed() {
		resp.Diagnostics.AddAttributeWarning(path.Root("api_url"), "The key crosses the network unencrypted",
			"The API's address begins with http:// and is not on this machine. Use https://, or a tunnel.")
	}
	resp.ResourceData, resp.DataSourceData, resp.EphemeralResourceData = api, api, api
}

func (p *weirProvider) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{
		func() resource.Resource { return &projectResource{} },
		func() resource.Resource { return &branchResource{} },
		func() resource.Resource { return &endpointResource{} },
		func() resource.Resource { return &roleResource{} },
		func() resource.Resource { return &databaseResource{} },
		func() resource.Resource { return &apiKeyResource{} },
		func() resource.Resource { return &rolloutResource{} },
		func() resource.Resource { return &organizationResource{} },
		func() resource.Resource { return &organizationMemberResource{} },
		func() resource.Resource { return &snapshotResource{} },
		func() resource.Resource { return &snapshotScheduleResource{} },
	}
}

func (p *weirProvider) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{
		func() datasource.DataSource { return &projectDataSource{} },
		func() datasource.DataSource { return &branchDataSource{} },
		func() datasource.DataSource { return &connectionURIDataSource{} },
		func() datasource.DataSource { return &rolloutPlanDataSource{} },
		func() datasource.DataSource { return &organizationDataSource{} },
		func() datasource.DataSource { return &snapshotDataSource{} },
	}
}

func (p *weirProvider) EphemeralResources(context.Context) []func() ephemeral.EphemeralResource {
	return []func() ephemeral.EphemeralResource{
		func() ephemeral.EphemeralResource { return &connectionURIEphemeral{} },
	}
}

var _ provider.ProviderWithEphemeralResources = &weirProvider{}
