"""Rankings: pair judgments counted in SQL, fitted in numpy, printed as rows."""
