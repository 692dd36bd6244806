"""The project's own sampler: a Gaussian process that knows memory, saturation, noise and the price of a restart."""
