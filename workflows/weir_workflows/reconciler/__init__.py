"""Makes what runs follow what is wanted."""
