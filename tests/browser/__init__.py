"""The page in a real browser. A package, so that pytest keeps one browser and one site for all of its modules."""
