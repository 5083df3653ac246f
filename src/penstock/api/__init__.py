"""What the API serves beside jobs: ways to the other parts, and what an operator looks at."""
