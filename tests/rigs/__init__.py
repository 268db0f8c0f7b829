"""What several tests stand on: lakes, studies, scripted servers, other programs."""
