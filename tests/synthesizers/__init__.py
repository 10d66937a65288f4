"""What every synthesizer must do, whatever its family."""
