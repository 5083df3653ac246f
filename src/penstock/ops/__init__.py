"""Operations: configuration, telemetry, and running, backing up and checking Penstock on one machine."""
