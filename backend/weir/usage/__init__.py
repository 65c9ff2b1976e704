"""What projects use of computes and storage: measured, kept by hours and days, and told."""
