"""What the checkout needs to build and test itself. Standard library only: it runs before anything is installed."""
