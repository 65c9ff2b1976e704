package provider

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// toJSON is a value as the API takes it: what is null or not known is left out.
func toJSON(value attr.Value) any {
	switch known := value.(type) {
	case types.String:
		return known.ValueString()
	case types.Int64:
		return known.ValueInt64()
	case types.Float64:
		return known.ValueFloat64()
	case types.Bool:
		return known.ValueBool()
	case types.List:
		list := make([]any, 0, len(known.Elements()))
		for _, element := range known.Elements() {
			list = append(list, toJSON(element))
		}
		return list
	case types.Map:
		return namedJSON(known.Elements())
	case types.Object:
		return namedJSON(known.Attributes())
	}
	return nil
}

func namedJSON(parts map[string]attr.Value) map[string]any {
	named := map[string]any{}
	for name, part := range parts {
		if !part.IsNull() && !part.IsUnknown() {
			named[name] = toJSON(part)
		}
	}
	return named
}

// fromJSON reads the API's JSON as a value of a type; null and what is absent are null. Names that the type does not
// have are left out: a newer API may say more.
func fromJSON(raw json.RawMessage, of attr.Type) (attr.Value, error) {
	null := len(raw) == 0 || string(raw) == "null"
	switch of := of.(type) {
	case types.ListType:
		if null {
			return types.ListNull(of.ElemType), nil
		}
		var elements []json.RawMessage
		if err := json.Unmarshal(raw, &elements); err != nil {
			return nil, err
		}
		values := make([]attr.Value, len(elements))
		for i, element := range elements {
			value, err := fromJSON(element, of.ElemType)
			if err != nil {
				return nil, err
			}
			values[i] = value
		}
		return types.ListValueMust(of.ElemType, values), nil
	case types.MapType:
		if null {
			return types.MapNull(of.ElemType), nil
		}
		values, err := namedValues(raw, func(string) attr.Type { return of.ElemType })
		if err != nil {
			return nil, err
		}
		return types.MapValueMust(of.ElemType, values), nil
	case types.ObjectType:
		if null {
			return types.ObjectNull(of.AttrTypes), nil
		}
		values, err := namedValues(raw, func(name string) attr.Type { return of.AttrTypes[name] })
		if err != nil {
			return nil, err
		}
		for name, part := range of.AttrTypes {
			if _, there := values[name]; !there {
				values[name], _ = fromJSON(nil, part)
			}
		}
		return types.ObjectValueMust(of.AttrTypes, values), nil
	}
	return scalarFromJSON(raw, null, of)
}

func scalarFromJSON(raw json.RawMessage, null bool, of attr.Type) (attr.Value, error) {
	switch of {
	case types.StringType:
		value, err := scalar[string](raw, null)
		return types.StringPointerValue(value), err
	case types.Int64Type:
		value, err := scalar[int64](raw, null)
		return types.Int64PointerValue(value), err
	case types.Float64Type:
		value, err := scalar[float64](raw, null)
		return types.Float64PointerValue(value), err
	case types.BoolType:
		value, err := scalar[bool](raw, null)
		return types.BoolPointerValue(value), err
	}
	return nil, fmt.Errorf("a rollout has no values of type %s", of)
}

func scalar[T any](raw json.RawMessage, null bool) (*T, error) {
	if null {
		return nil, nil
	}
	var value T
	return &value, json.Unmarshal(raw, &value)
}

func namedValues(raw json.RawMessage, of func(string) attr.Type) (map[string]attr.Value, error) {
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, err
	}
	values := map[string]attr.Value{}
	for name, part := range parts {
		kind := of(name)
		if kind == nil {
			continue
		}
		value, err := fromJSON(part, kind)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		values[name] = value
	}
	return values, nil
}

// filled is the known object with what is not known in it taken from what the API shows. What was given stays as it
// was written: the API writes times and numbers in its own way.
func filled(known, shown types.Object) types.Object {
	if known.IsUnknown() {
		return shown
	}
	if known.IsNull() {
		return known
	}
	values := map[string]attr.Value{}
	for name, value := range known.Attributes() {
		if value.IsUnknown() {
			value = shown.Attributes()[name]
		}
		values[name] = value
	}
	return types.ObjectValueMust(shown.AttributeTypes(context.Background()), values)
}
