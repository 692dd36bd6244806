"""What trials side by side are worth: speed, regret, and what kills cost."""
