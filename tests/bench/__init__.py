"""What takes how long, each as a ratio measured in one run."""
