"""The job `fan-out`: events become one dispatch job for each subscription that wants them."""
