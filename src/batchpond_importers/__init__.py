"""What other tools left behind, or a provider's batches, read into records that `import` takes: a module each."""
