package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"weir/terraform-provider-weir/internal/client"
)

// A careful rollout takes hours: its windows, soaks and freezes are made of waiting.
const defaultRolloutTimeout = 24 * time.Hour

const (
	waitStarted  = "started"
	waitWave     = "wave"
	waitFinished = "finished"
)

type rolloutResource struct{ onWeirResource }

type rolloutModel struct {
	ID             types.String   `tfsdk:"id"`
	Name           types.String   `tfsdk:"name"`
	Feature        types.String   `tfsdk:"feature"`
	Selector       types.Object   `tfsdk:"selector"`
	Strategy       types.Object   `tfsdk:"strategy"`
	WaitFor        types.String   `tfsdk:"wait_for"`
	AbortOnDestroy types.Bool     `tfsdk:"abort_on_destroy"`
	Status         types.String   `tfsdk:"status"`
	StatusReason   types.String   `tfsdk:"status_reason"`
	ComputesTotal  types.Int64    `tfsdk:"computes_total"`
	SwitchedTotal  types.Int64    `tfsdk:"switched_total"`
	CreatedAt      types.String   `tfsdk:"created_at"`
	FinishedAt     types.String   `tfsdk:"finished_at"`
	Timeouts       timeouts.Value `tfsdk:"timeouts"`
}

func (r *rolloutResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "weir_rollout"
}

func (r *rolloutResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A rollout: a feature carried through the fleet in waves. Applying starts it and waits as " +
			"`wait_for` says; what it is about cannot be changed, so another value makes another rollout. A rollout that has " +
			"ended is only forgotten when the resource is destroyed: what it switched stays switched.",
		Attributes: rolloutAttributes(),
		Blocks: map[string]schema.Block{
			"timeouts": timeouts.Block(ctx, timeouts.Opts{Create: true, Update: true, Delete: true}),
		},
	}
}

func rolloutAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"id":      lastingAttribute("Id of the rollout."),
		"name":    birthAttribute("Name of the rollout; the API chooses it unless given."),
		"feature": rolloutFeature(),
		"selector": schema.SingleNestedAttribute{
			MarkdownDescription: selectorText,
			Optional:            true,
			Attributes:          givenAttributes(selectorFields),
			PlanModifiers:       []planmodifier.Object{objectplanmodifier.RequiresReplace()},
		},
		"strategy": schema.SingleNestedAttribute{
			MarkdownDescription: strategyText,
			Optional:            true,
			Computed:            true,
			Attributes:          chosenAttributes(strategyFields),
			PlanModifiers:       []planmodifier.Object{objectplanmodifier.UseStateForUnknown()},
		},
		"wait_for": schema.StringAttribute{
			MarkdownDescription: "How far the rollout has to be for applying to succeed: `started`, `wave` (its first wave " +
				"has passed) or `finished` (it is completed), the default. While it waits, applying fails at once when the " +
				"rollout is held, fails, or goes back; it waits on while a person has paused it or has to approve it.",
			Optional:   true,
			Computed:   true,
			Default:    stringdefault.StaticString(waitFinished),
			Validators: []validator.String{stringvalidator.OneOf(waitStarted, waitWave, waitFinished)},
		},
		"abort_on_destroy": schema.BoolAttribute{
			MarkdownDescription: "Whether destroying the resource aborts a rollout that has not ended, and waits until it " +
				"has. Destroying is refused then unless this is true.",
			Optional: true,
			Computed: true,
			Default:  booldefault.StaticBool(false),
		},
		"status":         schema.StringAttribute{MarkdownDescription: "Where the rollout stands.", Computed: true},
		"status_reason":  schema.StringAttribute{MarkdownDescription: "Why it stands there.", Computed: true},
		"computes_total": schema.Int64Attribute{MarkdownDescription: "Computes in the plan.", Computed: true},
		"switched_total": schema.Int64Attribute{MarkdownDescription: "Computes that are switched.", Computed: true},
		"created_at":     lastingAttribute("When the rollout was made."),
		"finished_at":    schema.StringAttribute{MarkdownDescription: "When it ended.", Computed: true},
	}
}

func rolloutFeature() schema.StringAttribute {
	return schema.StringAttribute{
		MarkdownDescription: featureText,
		Required:            true,
		PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
		Validators:          []validator.String{stringvalidator.OneOf("image_pushdown", "postgres_minor")},
	}
}

// show takes over what the API says of a rollout. Selector and strategy are taken where they are not known: they never
// change.
func (m *rolloutModel) show(rollout *client.Rollout, diagnostics *diag.Diagnostics) {
	m.ID = types.StringValue(rollout.ID)
	m.Name = types.StringValue(rollout.Name)
	m.Feature = types.StringValue(rollout.Feature)
	m.Status = types.StringValue(rollout.Status)
	m.StatusReason = types.StringPointerValue(rollout.StatusReason)
	m.ComputesTotal = types.Int64Value(rollout.ComputesTotal)
	m.SwitchedTotal = types.Int64Value(rollout.SwitchedTotal)
	m.CreatedAt = types.StringValue(rollout.CreatedAt)
	m.FinishedAt = types.StringPointerValue(rollout.FinishedAt)
	strategy, err := fromJSON(rollout.Strategy, strategyType)
	if err != nil {
		diagnostics.AddError("The strategy of rollout "+rollout.ID+" cannot be read", err.Error())
		return
	}
	m.Strategy = filled(m.Strategy, strategy.(types.Object))
}

func intentOf(name, feature types.String, selector, strategy types.Object) client.Fields {
	fields := client.Fields{}
	put(fields, "name", name)
	put(fields, "feature", feature)
	for part, value := range map[string]types.Object{"selector": selector, "strategy": strategy} {
		if !value.IsNull() && !value.IsUnknown() {
			fields[part] = toJSON(value)
		}
	}
	return fields
}

func (r *rolloutResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	plan, well := taken[rolloutModel](ctx, req.Plan, &resp.Diagnostics)
	if !well {
		return
	}
	limit, problems := plan.Timeouts.Create(ctx, defaultRolloutTimeout)
	resp.Diagnostics.Append(problems...)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	rollout, err := r.api.CreateRollout(ctx, intentOf(plan.Name, plan.Feature, plan.Selector, plan.Strategy))
	if err != nil {
		resp.Diagnostics.AddError("The rollout was not started", err.Error())
		return
	}
	plan.show(rollout, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
	r.wait(ctx, &plan, rollout, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

// wait follows the rollout as far as the policy says, and leaves where it stands in the model.
func (r *rolloutResource) wait(
	ctx context.Context, model *rolloutModel, rollout *client.Rollout, diagnostics *diag.Diagnostics,
) {
	policy := model.WaitFor.ValueString()
	last, err := r.api.Await(ctx, rollout, func(now *client.Rollout) (bool, error) { return reached(policy, now) })
	model.show(last, diagnostics)
	if err != nil {
		diagnostics.AddError("Rollout "+last.ID+" was started and is not "+aims[policy], err.Error()+
			"\n\nThe rollout is in the state. Where applying has created it, the resource is tainted now: the next apply would "+
			"put another rollout in its place, which is refused while this one has not ended. `tofu untaint` keeps this one.")
	}
}

var aims = map[string]string{
	waitStarted: "running", waitWave: "past its first wave", waitFinished: "completed",
}

// reached says whether a rollout is as far as the policy wants it; an error: it will not get there by waiting.
func reached(policy string, rollout *client.Rollout) (bool, error) {
	switch {
	case policy == waitStarted || rollout.Status == "completed":
		return true, nil
	case policy == waitWave && passed(rollout):
		return true, nil
	case rollout.Status == "held" && !rollout.AwaitsApproval(), rollout.Ended():
		why := "no reason is given"
		if rollout.StatusReason != nil && *rollout.StatusReason != "" {
			why = *rollout.StatusReason
		}
		return false, fmt.Errorf("rollout %s (%s) is %s: %s; `weir rollouts show %s` and the console show its computes",
			rollout.Name, rollout.ID, rollout.Status, why, rollout.ID)
	}
	return false, nil
}

func passed(rollout *client.Rollout) bool {
	for _, wave := range rollout.Waves {
		if wave.State == "passed" {
			return true
		}
	}
	return false
}

func (r *rolloutResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	state, well := taken[rolloutModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	rollout, err := r.api.Rollout(ctx, state.ID.ValueString())
	if unread(ctx, resp, err, "Rollout "+state.ID.ValueString()+" cannot be read") {
		return
	}
	if state.Feature.IsNull() {
		// Imported: nothing but the id is known.
		selector, err := fromJSON(rollout.Selector, selectorType)
		if err != nil {
			resp.Diagnostics.AddError("The selector of rollout "+rollout.ID+" cannot be read", err.Error())
			return
		}
		if len(namedJSON(selector.(types.Object).Attributes())) > 0 {
			state.Selector = selector.(types.Object)
		}
		state.Strategy = types.ObjectUnknown(strategyType.AttrTypes)
		state.WaitFor, state.AbortOnDestroy = types.StringValue(waitFinished), types.BoolValue(false)
	}
	state.show(rollout, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &state)...)
}

// Update takes another policy. Where another `wait_for` is among it, a rollout that has not ended is waited for as that
// says; `abort_on_destroy` can be given to a rollout that is held.
func (r *rolloutResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var plan, state rolloutModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	limit, problems := plan.Timeouts.Update(ctx, defaultRolloutTimeout)
	resp.Diagnostics.Append(problems...)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	rollout, err := r.api.Rollout(ctx, plan.ID.ValueString())
	if err != nil {
		resp.Diagnostics.AddError("Rollout "+plan.ID.ValueString()+" cannot be read", err.Error())
		return
	}
	plan.show(rollout, &resp.Diagnostics)
	if !rollout.Ended() && !plan.WaitFor.Equal(state.WaitFor) {
		r.wait(ctx, &plan, rollout, &resp.Diagnostics)
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *rolloutResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	state, well := taken[rolloutModel](ctx, req.State, &resp.Diagnostics)
	if !well {
		return
	}
	ctx, cancel := within(ctx, state.Timeouts.Delete, &resp.Diagnostics)
	defer cancel()
	rollout, err := r.api.Rollout(ctx, state.ID.ValueString())
	if client.IsNotFound(err) || (err == nil && rollout.Ended()) {
		return
	}
	if err == nil && !state.AbortOnDestroy.ValueBool() {
		resp.Diagnostics.AddError(fmt.Sprintf("Rollout %s has not ended and is not destroyed", rollout.ID),
			fmt.Sprintf("Rollout %s (%s) is %s, with %d of %d computes switched. Wait until it has ended; or set "+
				"abort_on_destroy = true, apply, and destroy again, which aborts it: computes that have not passed go back. "+
				"`tofu state rm` forgets it and lets it go on.",
				rollout.Name, rollout.ID, rollout.Status, rollout.SwitchedTotal, rollout.ComputesTotal))
		return
	}
	if err == nil {
		err = r.abort(ctx, rollout)
	}
	if err != nil {
		resp.Diagnostics.AddError("Rollout "+state.ID.ValueString()+" was not aborted", err.Error())
	}
}

func (r *rolloutResource) abort(ctx context.Context, rollout *client.Rollout) error {
	if rollout.Status != "aborting" && rollout.Status != "rolling_back" {
		aborted, err := r.api.AbortRollout(ctx, rollout.ID)
		if err != nil {
			// It may have ended between the two requests.
			if now, again := r.api.Rollout(ctx, rollout.ID); again == nil && now.Ended() {
				return nil
			}
			return err
		}
		rollout = aborted
	}
	_, err := r.api.Await(ctx, rollout, func(now *client.Rollout) (bool, error) { return now.Ended(), nil })
	return err
}

func (r *rolloutResource) ImportState(
	ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse,
) {
	importParts(ctx, req, resp, "id")
}

var _ resource.ResourceWithImportState = &rolloutResource{}
