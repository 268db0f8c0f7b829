"""The house itself: its floors, its names, its pages."""
