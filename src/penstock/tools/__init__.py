"""Tools that drive the product: benchmarks and the demo."""
