"""Commands that exercise the system: benchmarks, the demo and simulations."""
