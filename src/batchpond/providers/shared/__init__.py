"""What several providers' adapters share."""
