"""The bill of materials: what others wrote and Weir is made of, tested with or started beside, in CycloneDX."""
