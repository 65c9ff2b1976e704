"""What every workflow and activity shares."""
