"""How figures are drawn, a module per kind of chart."""
