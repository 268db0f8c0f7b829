"""The chapters of a report: each looks for its data and returns a section, or None where the study has none."""
