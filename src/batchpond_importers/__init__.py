"""What other tools left behind, read into records that `batchpond import` takes: a module for each tool."""
