// Command terraform-provider-weir is Weir's provider for OpenTofu and Terraform. The program is started by them, and
// speaks their plugin protocol, version 6.
package main

import (
	"context"
	"flag"
	"log"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"weir/terraform-provider-weir/internal/provider"
)

// version is set by the linker where a release is built.
var version = "dev"

func main() {
	var debug bool
	flag.BoolVar(&debug, "debug", false, "wait for a debugger and print how OpenTofu reaches this process")
	flag.Parse()
	options := providerserver.ServeOpts{Address: "registry.terraform.io/weir/weir", Debug: debug}
	if err := providerserver.Serve(context.Background(), provider.New(version), options); err != nil {
		log.Fatal(err)
	}
}
