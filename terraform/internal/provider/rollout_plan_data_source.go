package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

const defaultListed = 200

type rolloutPlanDataSource struct{ onWeirDataSource }

type rolloutPlanModel struct {
	Feature          types.String      `tfsdk:"feature"`
	Selector         types.Object      `tfsdk:"selector"`
	Strategy         types.Object      `tfsdk:"strategy"`
	Limit            types.Int64       `tfsdk:"limit"`
	ComputesTotal    types.Int64       `tfsdk:"computes_total"`
	AtNextStartTotal types.Int64       `tfsdk:"at_next_start_total"`
	ExcludedTotal    types.Int64       `tfsdk:"excluded_total"`
	WalSaved         types.Float64     `tfsdk:"expected_wal_saved_bytes_per_second"`
	TargetVersion    types.String      `tfsdk:"target_version"`
	Waves            []plannedWave     `tfsdk:"waves"`
	Computes         []plannedCompute  `tfsdk:"computes"`
	Excluded         []excludedCompute `tfsdk:"excluded"`
}

type plannedWave struct {
	Index       int64  `tfsdk:"index"`
	Name        string `tfsdk:"name"`
	SoakSeconds int64  `tfsdk:"soak_seconds"`
	Computes    int64  `tfsdk:"computes"`
}

type plannedCompute struct {
	ComputeID string `tfsdk:"compute_id"`
	ProjectID string `tfsdk:"project_id"`
	Wave      int64  `tfsdk:"wave"`
	Mode      string `tfsdk:"mode"`
}

type excludedCompute struct {
	ComputeID string `tfsdk:"compute_id"`
	ProjectID string `tfsdk:"project_id"`
	Code      string `tfsdk:"code"`
	Reason    string `tfsdk:"reason"`
}

func (d *rolloutPlanDataSource) Metadata(
	_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse,
) {
	resp.TypeName = "weir_rollout_plan"
}

func (d *rolloutPlanDataSource) Schema(
	_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse,
) {
	number := func(about string) schema.Attribute {
		return schema.Int64Attribute{MarkdownDescription: about, Computed: true}
	}
	list := func(about string, attributes map[string]schema.Attribute) schema.Attribute {
		object := schema.NestedAttributeObject{Attributes: attributes}
		return schema.ListNestedAttribute{MarkdownDescription: about, Computed: true, NestedObject: object}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "The plan that a rollout would have now: which computes in which wave, and which not and " +
			"why. Reading it changes nothing.",
		Attributes: map[string]schema.Attribute{
			"feature": schema.StringAttribute{
				MarkdownDescription: featureText, Required: true,
				Validators: []validator.String{stringvalidator.OneOf("image_pushdown", "postgres_minor")},
			},
			"selector": schema.SingleNestedAttribute{
				MarkdownDescription: selectorText, Optional: true, Attributes: askedAttributes(selectorFields),
			},
			"strategy": schema.SingleNestedAttribute{
				MarkdownDescription: strategyText, Optional: true, Attributes: askedAttributes(strategyFields),
			},
			"limit": schema.Int64Attribute{
				MarkdownDescription: "Most entries of `computes` and of `excluded`; 200 unless given. Totals count all.",
				Optional:            true, Validators: []validator.Int64{int64validator.Between(0, 20000)},
			},
			"computes_total":      number("Computes in the plan."),
			"at_next_start_total": number("Suspended ones among them, which switch at their next start."),
			"excluded_total":      number("Computes that the selector chooses and the plan leaves out."),
			"expected_wal_saved_bytes_per_second": schema.Float64Attribute{
				MarkdownDescription: "WAL that would not be written any more; null where nothing is known.", Computed: true,
			},
			"target_version": shown("Of `postgres_minor`: the minor that computes would be restarted onto."),
			"waves": list("The waves in their order.", map[string]schema.Attribute{
				"index":        number("Place of the wave, from 0."),
				"name":         shown("Name of the wave."),
				"soak_seconds": number("For how long the fleet is watched after the wave."),
				"computes":     number("Computes in the wave."),
			}),
			"computes": list("Computes in the plan.", map[string]schema.Attribute{
				"compute_id": shown("Id of the compute's endpoint."),
				"project_id": shown("Id of its project."),
				"wave":       number("Wave in which it is switched."),
				"mode":       shown("`running` or `at_next_start`."),
			}),
			"excluded": list("Computes that are left out.", map[string]schema.Attribute{
				"compute_id": shown("Id of the compute's endpoint."),
				"project_id": shown("Id of its project."),
				"code":       shown("Why, in a word."),
				"reason":     shown("Why, in a sentence."),
			}),
		},
	}
}

func (d *rolloutPlanDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	model, well := taken[rolloutPlanModel](ctx, req.Config, &resp.Diagnostics)
	if !well {
		return
	}
	limit := int64(defaultListed)
	if !model.Limit.IsNull() {
		limit = model.Limit.ValueInt64()
	}
	plan, err := d.api.PlanRollout(ctx, intentOf(types.StringNull(), model.Feature, model.Selector, model.Strategy), limit)
	if err != nil {
		resp.Diagnostics.AddError("The rollout cannot be planned", err.Error())
		return
	}
	model.ComputesTotal = types.Int64Value(plan.ComputesTotal)
	model.AtNextStartTotal = types.Int64Value(plan.AtNextStartTotal)
	model.ExcludedTotal = types.Int64Value(plan.ExcludedTotal)
	model.WalSaved = types.Float64PointerValue(plan.WalSaved)
	model.TargetVersion = types.StringPointerValue(plan.TargetVersion)
	model.Waves, model.Computes, model.Excluded = []plannedWave{}, []plannedCompute{}, []excludedCompute{}
	for _, wave := range plan.Waves {
		model.Waves = append(model.Waves, plannedWave(wave))
	}
	for _, compute := range plan.Computes {
		model.Computes = append(model.Computes, plannedCompute(compute))
	}
	for _, compute := range plan.Excluded {
		model.Excluded = append(model.Excluded, excludedCompute(compute))
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &model)...)
}
