package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	datasourceschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	ephemeralschema "github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"weir/terraform-provider-weir/internal/client"
)

type connectionURIModel struct {
	ProjectID    types.String `tfsdk:"project_id"`
	BranchID     types.String `tfsdk:"branch_id"`
	EndpointID   types.String `tfsdk:"endpoint_id"`
	RoleName     types.String `tfsdk:"role_name"`
	DatabaseName types.String `tfsdk:"database_name"`
	Pooled       types.Bool   `tfsdk:"pooled"`
	URI          types.String `tfsdk:"uri"`
}

var connectionTexts = struct{ project, branch, endpoint, role, database, pooled, uri string }{
	project:  "Id of the project.",
	branch:   "Id of the branch; the project's default branch unless given.",
	endpoint: "Id of the endpoint; the branch's read-write endpoint unless given.",
	role:     "Name of the role.",
	database: "Name of the database.",
	pooled:   "Whether the client shares server connections with others, for programs that open many.",
	uri:      "The URI, which `psql` and drivers take as it is. The role's password is in it.",
}

func (m *connectionURIModel) fetch(ctx context.Context, api *client.Client) error {
	uri, err := api.ConnectionURI(ctx, client.Connection{
		ProjectID:  m.ProjectID.ValueString(),
		BranchID:   m.BranchID.ValueString(),
		EndpointID: m.EndpointID.ValueString(),
		Role:       m.RoleName.ValueString(),
		Database:   m.DatabaseName.ValueString(),
		Pooled:     m.Pooled.ValueBool(),
	})
	m.URI = types.StringValue(uri)
	return err
}

type connectionURIDataSource struct{ onWeirDataSource }

func (d *connectionURIDataSource) Metadata(
	_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse,
) {
	resp.TypeName = "weir_connection_uri"
}

func (d *connectionURIDataSource) Schema(
	_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse,
) {
	texts := connectionTexts
	required := func(about string) datasourceschema.Attribute {
		return datasourceschema.StringAttribute{MarkdownDescription: about, Required: true}
	}
	optional := func(about string) datasourceschema.Attribute {
		return datasourceschema.StringAttribute{MarkdownDescription: about, Optional: true}
	}
	resp.Schema = datasourceschema.Schema{
		MarkdownDescription: "How a client connects to a branch. The state keeps the URI with its password; the " +
			"ephemeral resource of the same name keeps it nowhere and is to be preferred where its value may be used.",
		Attributes: map[string]datasourceschema.Attribute{
			"project_id":    required(texts.project),
			"branch_id":     optional(texts.branch),
			"endpoint_id":   optional(texts.endpoint),
			"role_name":     required(texts.role),
			"database_name": required(texts.database),
			"pooled":        datasourceschema.BoolAttribute{MarkdownDescription: texts.pooled, Optional: true},
			"uri": datasourceschema.StringAttribute{
				MarkdownDescription: texts.uri, Computed: true, Sensitive: true,
			},
		},
	}
}

func (d *connectionURIDataSource) Read(
	ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse,
) {
	model, well := taken[connectionURIModel](ctx, req.Config, &resp.Diagnostics)
	if !well {
		return
	}
	if err := model.fetch(ctx, d.api); err != nil {
		resp.Diagnostics.AddError("The connection URI cannot be read", err.Error())
		return
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &model)...)
}

type connectionURIEphemeral struct{ onWeir }

func (e *connectionURIEphemeral) Configure(
	_ context.Context, req ephemeral.ConfigureRequest, _ *ephemeral.ConfigureResponse,
) {
	e.take(req.ProviderData)
}

func (e *connectionURIEphemeral) Metadata(
	_ context.Context, _ ephemeral.MetadataRequest, resp *ephemeral.MetadataResponse,
) {
	resp.TypeName = "weir_connection_uri"
}

func (e *connectionURIEphemeral) Schema(
	_ context.Context, _ ephemeral.SchemaRequest, resp *ephemeral.SchemaResponse,
) {
	texts := connectionTexts
	attributes := map[string]ephemeralschema.Attribute{
		"pooled": ephemeralschema.BoolAttribute{MarkdownDescription: texts.pooled, Optional: true},
		"uri":    ephemeralschema.StringAttribute{MarkdownDescription: texts.uri, Computed: true, Sensitive: true},
	}
	for name, about := range map[string]string{"branch_id": texts.branch, "endpoint_id": texts.endpoint} {
		attributes[name] = ephemeralschema.StringAttribute{MarkdownDescription: about, Optional: true}
	}
	required := map[string]string{
		"project_id": texts.project, "role_name": texts.role, "database_name": texts.database,
	}
	for name, about := range required {
		attributes[name] = ephemeralschema.StringAttribute{MarkdownDescription: about, Required: true}
	}
	resp.Schema = ephemeralschema.Schema{
		MarkdownDescription: "How a client connects to a branch, with the role's password, for provider configurations " +
			"and write-only arguments. It is read when it is needed, and neither plan nor state keeps it.",
		Attributes: attributes,
	}
}

func (e *connectionURIEphemeral) Open(ctx context.Context, req ephemeral.OpenRequest, resp *ephemeral.OpenResponse) {
	model, well := taken[connectionURIModel](ctx, req.Config, &resp.Diagnostics)
	if !well {
		return
	}
	if err := model.fetch(ctx, e.api); err != nil {
		resp.Diagnostics.AddError("The connection URI cannot be read", err.Error())
		return
	}
	resp.Diagnostics.Append(resp.Result.Set(ctx, &model)...)
}

var _ ephemeral.EphemeralResourceWithConfigure = &connectionURIEphemeral{}
