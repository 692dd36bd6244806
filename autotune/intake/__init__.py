"""What people already have (a launch script, a benchmark's results, a sweep) turned into the draft of a study. Pure."""
