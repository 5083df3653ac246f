"""`penstock queue`: a command line for any SQS endpoint."""
