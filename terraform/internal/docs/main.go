// Command docs writes the provider's reference, terraform/docs, from the provider's own schema. Run it in terraform/:
// `go run ./internal/docs`. A test says when what is committed is not what it writes.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"weir/terraform-provider-weir/internal/provider"
)

func main() {
	pages, err := render()
	if err != nil {
		log.Fatal(err)
	}
	for name, text := range pages {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// importIDs are the ids that `tofu import` takes, by resource.
var importIDs = map[string]string{
	"weir_project":  "PROJECT_ID",
	"weir_branch":   "PROJECT_ID/BRANCH_ID",
	"weir_endpoint": "PROJECT_ID/ENDPOINT_ID",
	"weir_role":     "PROJECT_ID/BRANCH_ID/NAME",
	"weir_database": "PROJECT_ID/BRANCH_ID/NAME",
	"weir_api_key":  "KEY_NUMBER",
	"weir_rollout":  "ROLLOUT_ID",

	"weir_organization":        "ORGANIZATION_ID",
	"weir_organization_member": "ORGANIZATION_ID/MEMBERSHIP_ID",
	"weir_snapshot":            "PROJECT_ID/SNAPSHOT_ID",
	"weir_snapshot_schedule":   "PROJECT_ID/BRANCH_ID",
}

var kindsOfChange = map[string]string{
	"create": "creation", "read": "reading", "update": "change", "delete": "deletion",
}

// render makes all pages, by their path from terraform/.
func render() (map[string]string, error) {
	server, err := providerserver.NewProtocol6WithError(provider.New("docs")())()
	if err != nil {
		return nil, err
	}
	schemas, err := server.GetProviderSchema(context.Background(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		return nil, err
	}
	for _, problem := range schemas.Diagnostics {
		return nil, fmt.Errorf("the schema is wrong: %s: %s", problem.Summary, problem.Detail)
	}
	pages := map[string]string{"docs/index.md": page("weir", "Provider", schemas.Provider, "")}
	for name, schema := range schemas.ResourceSchemas {
		id, known := importIDs[name]
		if !known {
			return nil, fmt.Errorf("resource %s has no import id in internal/docs", name)
		}
		imported := "## Import\n\n```sh\ntofu import " + name + ".example " + id + "\n```\n"
		pages[where("resources", name)] = page(name, "Resource", schema, imported)
	}
	for name, schema := range schemas.DataSourceSchemas {
		pages[where("data-sources", name)] = page(name, "Data source", schema, "")
	}
	for name, schema := range schemas.EphemeralResourceSchemas {
		pages[where("ephemeral-resources", name)] = page(name, "Ephemeral resource", schema, "")
	}
	return pages, nil
}

func where(folder, name string) string {
	return "docs/" + folder + "/" + strings.TrimPrefix(name, "weir_") + ".md"
}

func page(name, kind string, schema *tfprotov6.Schema, after string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "---\npage_title: %q\n---\n\n# %s: %s\n\n%s\n\n", name, kind, name, schema.Block.Description)
	if example, err := os.ReadFile(filepath.Join("examples", examplePath(kind, name))); err == nil {
		fmt.Fprintf(&text, "## Example\n\n```hcl\n%s```\n\n", example)
	}
	attributes := schema.Block.Attributes
	section(&text, "Required", pick(attributes, func(a *tfprotov6.SchemaAttribute) bool { return a.Required }))
	section(&text, "Optional", pick(attributes, func(a *tfprotov6.SchemaAttribute) bool { return a.Optional }))
	for _, block := range schema.Block.BlockTypes {
		fmt.Fprintf(&text, "## Block `%s`\n\n", block.TypeName)
		for _, attribute := range sorted(block.Block.Attributes) {
			fmt.Fprintf(&text, "- `%s` (%s) How long the %s may take, such as `30m`.\n", attribute.Name,
				typeName(attribute.Type), kindsOfChange[attribute.Name])
		}
		text.WriteString("\n")
	}
	section(&text, "Read only",
		pick(attributes, func(a *tfprotov6.SchemaAttribute) bool { return a.Computed && !a.Optional }))
	text.WriteString(after)
	return strings.TrimRight(text.String(), "\n") + "\n"
}

func examplePath(kind, name string) string {
	switch kind {
	case "Provider":
		return "provider/provider.tf"
	case "Resource":
		return "resources/" + name + "/resource.tf"
	case "Data source":
		return "data-sources/" + name + "/data-source.tf"
	}
	return "ephemeral-resources/" + name + "/ephemeral-resource.tf"
}

func sorted(attributes []*tfprotov6.SchemaAttribute) []*tfprotov6.SchemaAttribute {
	copied := append([]*tfprotov6.SchemaAttribute{}, attributes...)
	sort.Slice(copied, func(i, j int) bool { return copied[i].Name < copied[j].Name })
	return copied
}

func pick(
	attributes []*tfprotov6.SchemaAttribute, wanted func(*tfprotov6.SchemaAttribute) bool,
) []*tfprotov6.SchemaAttribute {
	var picked []*tfprotov6.SchemaAttribute
	for _, attribute := range sorted(attributes) {
		if wanted(attribute) {
			picked = append(picked, attribute)
		}
	}
	return picked
}

func section(text *strings.Builder, title string, attributes []*tfprotov6.SchemaAttribute) {
	if len(attributes) == 0 {
		return
	}
	fmt.Fprintf(text, "## %s\n\n", title)
	list(text, attributes, "")
	text.WriteString("\n")
}

func list(text *strings.Builder, attributes []*tfprotov6.SchemaAttribute, indent string) {
	for _, attribute := range attributes {
		notes := []string{attributeType(attribute)}
		for note, so := range map[string]bool{"sensitive": attribute.Sensitive, "write-only": attribute.WriteOnly} {
			if so {
				notes = append(notes, note)
			}
		}
		sort.Strings(notes[1:])
		fmt.Fprintf(text, "%s- `%s` (%s) %s\n", indent, attribute.Name, strings.Join(notes, ", "), attribute.Description)
		if attribute.NestedType != nil {
			list(text, sorted(attribute.NestedType.Attributes), indent+"    ")
		}
	}
}

func attributeType(attribute *tfprotov6.SchemaAttribute) string {
	if attribute.NestedType == nil {
		return typeName(attribute.Type)
	}
	if attribute.NestedType.Nesting == tfprotov6.SchemaObjectNestingModeList {
		return "list of objects"
	}
	return "object"
}

func typeName(of tftypes.Type) string {
	switch of := of.(type) {
	case tftypes.List:
		return "list of " + typeName(of.ElementType) + "s"
	case tftypes.Map:
		return "map of " + typeName(of.ElementType) + "s"
	}
	switch {
	case of.Is(tftypes.String):
		return "string"
	case of.Is(tftypes.Number):
		return "number"
	case of.Is(tftypes.Bool):
		return "bool"
	}
	return of.String()
}
