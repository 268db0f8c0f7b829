"""What a study file says about its stages."""
