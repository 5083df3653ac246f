"""What `penstock demo` runs."""
