"""Projects that change hands: from one organisation to another."""
