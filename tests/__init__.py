"""Tests: `unit` a room at a time, `flow` whole studies, `process` the program, `contract` every provider."""
