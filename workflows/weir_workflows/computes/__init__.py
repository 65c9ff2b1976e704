"""Starting, configuring and stopping computes."""
