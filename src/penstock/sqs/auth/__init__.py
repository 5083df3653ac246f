"""Who asks: access keys and AWS Signature Version 4."""
