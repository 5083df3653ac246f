"""`penstock serve`: one part of Penstock alone."""
