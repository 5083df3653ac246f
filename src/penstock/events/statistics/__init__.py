"""Deliveries counted minute by minute, by the inline engine or by Spark, with one rule."""
