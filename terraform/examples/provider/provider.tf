terraform {
  required_providers {
    weir = {
      source = "weir/weir"
    }
  }
}

# The address and the key are WEIR_API_URL and WEIR_API_KEY of the environment.
provider "weir" {}
