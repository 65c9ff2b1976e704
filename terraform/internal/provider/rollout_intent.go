package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/attr"
	datasourceschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/boolplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/float64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/listplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// field is a part of what is asked of a rollout: one name of the API, which is the attribute's name too. The resource,
// the data source of plans and the JSON of requests and answers are all made of these tables.
type field struct {
	name  string
	of    attr.Type
	about string
	// parts are the fields of an object, or of the objects of a list.
	parts []field
}

func objectOf(parts []field) types.ObjectType {
	named := make(map[string]attr.Type, len(parts))
	for _, part := range parts {
		named[part.name] = part.of
	}
	return types.ObjectType{AttrTypes: named}
}

var (
	texts   = types.ListType{ElemType: types.StringType}
	numbers = types.ListType{ElemType: types.Int64Type}
	tags    = types.MapType{ElemType: types.StringType}
)

var spanFields = []field{
	{name: "min", of: types.Float64Type, about: "The least, itself included."},
	{name: "max", of: types.Float64Type, about: "The most, itself included."},
}

// selectorFields say whose computes: those for which every field given holds.
var selectorFields = []field{
	{name: "org_ids", of: texts, about: "Accounts that own the projects."},
	{name: "project_ids", of: texts, about: "Ids of projects."},
	{name: "region_ids", of: texts, about: "Regions."},
	{name: "cells", of: texts, about: "Cells."},
	{name: "tags", of: tags, about: "Tags that a project must have, all of them, with these values."},
	{name: "pg_versions", of: numbers, about: "Major versions of Postgres."},
	{name: "size_bytes", of: objectOf(spanFields), about: "What storage keeps for the branch.", parts: spanFields},
	{
		name: "wal_bytes_per_second", of: objectOf(spanFields), about: "What the compute writes now.", parts: spanFields,
	},
}

var waveFields = []field{
	{name: "count", of: types.Int64Type, about: "So many computes. Either this or `percent`."},
	{name: "percent", of: types.Float64Type, about: "So many percent of all computes once the wave is done."},
	{name: "name", of: types.StringType, about: "Name of the wave."},
	{
		name: "soak_seconds", of: types.Int64Type,
		about: "For how long the fleet is watched after the wave; the strategy's unless given.",
	},
}

var freezeFields = []field{
	{name: "from", of: types.StringType, about: "Moment (RFC 3339) at which a single freeze begins."},
	{name: "to", of: types.StringType, about: "Moment (RFC 3339) at which it ends."},
	{name: "weekdays", of: numbers, about: "Days on which a weekly freeze begins: 1 is Monday, 7 Sunday."},
	{name: "start_time", of: types.StringType, about: "When it begins, `HH:MM` in UTC."},
	{name: "end_time", of: types.StringType, about: "When it ends, `HH:MM` in UTC."},
	{name: "reason", of: types.StringType, about: "Why."},
}

// strategyFields say how a rollout proceeds.
var strategyFields = []field{
	{
		name: "waves", of: types.ListType{ElemType: objectOf(waveFields)}, parts: waveFields,
		about: "The waves in their order; one compute, 1 %, 5 %, 25 % and everyone unless given.",
	},
	{name: "baseline_seconds", of: types.Int64Type, about: "For how long a compute is measured before its switch."},
	{name: "bake_seconds", of: types.Int64Type, about: "For how long it is measured after; 0 judges nothing."},
	{name: "settle_seconds", of: types.Int64Type, about: "Pause between the switch and the measurement after it."},
	{name: "soak_seconds", of: types.Int64Type, about: "For how long the fleet is watched after each wave."},
	{name: "plan_approval_required", of: types.BoolType, about: "Whether a person has to approve the frozen plan first."},
	{name: "approval_required", of: types.BoolType, about: "Whether a person has to approve each wave after the first."},
	{name: "max_concurrent", of: types.Int64Type, about: "Computes under way at one moment."},
	{name: "max_concurrent_per_cell", of: types.Int64Type, about: "The same within one cell."},
	{name: "max_concurrent_per_org", of: types.Int64Type, about: "The same of one owner."},
	{name: "max_failed_percent", of: types.Float64Type, about: "Share of a wave that may regress or fail before it stops."},
	{name: "holdout_percent", of: types.Float64Type, about: "Share of the fleet that is never switched, as controls."},
	{name: "include_suspended", of: types.BoolType, about: "Whether suspended computes are taken, at their next start."},
	{name: "new_computes", of: types.BoolType, about: "Whether computes made later begin switched."},
	{
		name: "freeze_windows", of: types.ListType{ElemType: objectOf(freezeFields)}, parts: freezeFields,
		about: "When nothing is switched: each with `from` and `to`, or with weekdays and times.",
	},
	{name: "respect_maintenance_windows", of: types.BoolType, about: "Whether projects are switched in their windows only."},
	{name: "step_deadline_seconds", of: types.Int64Type, about: "After how long a late step alerts a person."},
	{name: "judge_by", of: types.StringType, about: "`controls` or `bounds`."},
	{name: "tolerated_ratio", of: types.Float64Type, about: "Ratio of a latency to its controls' that a pass rules out."},
	{name: "max_chain_length", of: types.Float64Type, about: "Deltas that 99 % of storage reads stay below."},
	{name: "max_p99_ratio", of: types.Float64Type, about: "Ratio by which a p99 regresses, together with the slack."},
	{name: "p99_slack_seconds", of: types.Float64Type, about: "Seconds by which a p99 regresses, together with the ratio."},
	{name: "max_image_share", of: types.Float64Type, about: "Share of WAL that may still be page images."},
	{name: "image_threshold", of: types.Int64Type, about: "Deltas a page may gather before storage makes an image of it."},
	{name: "target_version", of: types.StringType, about: "Of `postgres_minor`: the minor, such as `15.18`; the newest unless given."},
}

var (
	selectorType = objectOf(selectorFields)
	strategyType = objectOf(strategyFields)
)

const (
	featureText  = "What is carried through the fleet: `image_pushdown` or `postgres_minor`."
	selectorText = "Whose computes: those for which every field given holds. All that the key may see unless given."
	strategyText = "How the rollout proceeds. What is left out is the API's default."
)

// chosenAttribute is a field of a rollout: another value makes another rollout, and none is the API's.
func chosenAttribute(f field) schema.Attribute {
	about := f.about
	switch of := f.of.(type) {
	case types.ListType:
		modifiers := []planmodifier.List{listplanmodifier.UseStateForUnknown(), listplanmodifier.RequiresReplaceIfConfigured()}
		if f.parts != nil {
			return schema.ListNestedAttribute{
				MarkdownDescription: about, Optional: true, Computed: true, PlanModifiers: modifiers,
				NestedObject: schema.NestedAttributeObject{Attributes: givenAttributes(f.parts)},
			}
		}
		return schema.ListAttribute{
			MarkdownDescription: about, Optional: true, Computed: true, PlanModifiers: modifiers, ElementType: of.ElemType,
		}
	}
	switch f.of {
	case types.Int64Type:
		return schema.Int64Attribute{
			MarkdownDescription: about, Optional: true, Computed: true, PlanModifiers: []planmodifier.Int64{
				int64planmodifier.UseStateForUnknown(), int64planmodifier.RequiresReplaceIfConfigured(),
			},
		}
	case types.Float64Type:
		return schema.Float64Attribute{
			MarkdownDescription: about, Optional: true, Computed: true, PlanModifiers: []planmodifier.Float64{
				float64planmodifier.UseStateForUnknown(), float64planmodifier.RequiresReplaceIfConfigured(),
			},
		}
	case types.BoolType:
		return schema.BoolAttribute{
			MarkdownDescription: about, Optional: true, Computed: true, PlanModifiers: []planmodifier.Bool{
				boolplanmodifier.UseStateForUnknown(), boolplanmodifier.RequiresReplaceIfConfigured(),
			},
		}
	}
	return schema.StringAttribute{
		MarkdownDescription: about, Optional: true, Computed: true, PlanModifiers: []planmodifier.String{
			stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured(),
		},
	}
}

func chosenAttributes(fields []field) map[string]schema.Attribute {
	made := make(map[string]schema.Attribute, len(fields))
	for _, f := range fields {
		made[f.name] = chosenAttribute(f)
	}
	return made
}

// givenAttribute is a field that is there only where the configuration gives it.
func givenAttribute(f field) schema.Attribute {
	switch of := f.of.(type) {
	case types.ListType:
		if f.parts == nil {
			return schema.ListAttribute{MarkdownDescription: f.about, Optional: true, ElementType: of.ElemType}
		}
		object := schema.NestedAttributeObject{Attributes: givenAttributes(f.parts)}
		return schema.ListNestedAttribute{MarkdownDescription: f.about, Optional: true, NestedObject: object}
	case types.MapType:
		return schema.MapAttribute{MarkdownDescription: f.about, Optional: true, ElementType: of.ElemType}
	case types.ObjectType:
		return schema.SingleNestedAttribute{
			MarkdownDescription: f.about, Optional: true, Attributes: givenAttributes(f.parts),
		}
	}
	switch f.of {
	case types.Int64Type:
		return schema.Int64Attribute{MarkdownDescription: f.about, Optional: true}
	case types.Float64Type:
		return schema.Float64Attribute{MarkdownDescription: f.about, Optional: true}
	case types.BoolType:
		return schema.BoolAttribute{MarkdownDescription: f.about, Optional: true}
	}
	return schema.StringAttribute{MarkdownDescription: f.about, Optional: true}
}

func givenAttributes(fields []field) map[string]schema.Attribute {
	made := make(map[string]schema.Attribute, len(fields))
	for _, f := range fields {
		made[f.name] = givenAttribute(f)
	}
	return made
}

// askedAttributes are the same fields in the data source of plans.
func askedAttributes(fields []field) map[string]datasourceschema.Attribute {
	made := make(map[string]datasourceschema.Attribute, len(fields))
	for _, f := range fields {
		made[f.name] = askedAttribute(f)
	}
	return made
}

func askedAttribute(f field) datasourceschema.Attribute {
	switch of := f.of.(type) {
	case types.ListType:
		if f.parts == nil {
			return datasourceschema.ListAttribute{MarkdownDescription: f.about, Optional: true, ElementType: of.ElemType}
		}
		object := datasourceschema.NestedAttributeObject{Attributes: askedAttributes(f.parts)}
		return datasourceschema.ListNestedAttribute{MarkdownDescription: f.about, Optional: true, NestedObject: object}
	case types.MapType:
		return datasourceschema.MapAttribute{MarkdownDescription: f.about, Optional: true, ElementType: of.ElemType}
	case types.ObjectType:
		return datasourceschema.SingleNestedAttribute{
			MarkdownDescription: f.about, Optional: true, Attributes: askedAttributes(f.parts),
		}
	}
	switch f.of {
	case types.Int64Type:
		return datasourceschema.Int64Attribute{MarkdownDescription: f.about, Optional: true}
	case types.Float64Type:
		return datasourceschema.Float64Attribute{MarkdownDescription: f.about, Optional: true}
	case types.BoolType:
		return datasourceschema.BoolAttribute{MarkdownDescription: f.about, Optional: true}
	}
	return datasourceschema.StringAttribute{MarkdownDescription: f.about, Optional: true}
}
