"""JSON APIs: routes, OpenAPI, problems, pages, probes."""
