"""People, the organisations they belong to, and how they sign in."""
