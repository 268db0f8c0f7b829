"""What SQL made of the judgments, for people and papers."""
