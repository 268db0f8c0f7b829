"""The product's views on an engine that speaks Spark's SQL: as a script of it, and as the large half of a query."""
