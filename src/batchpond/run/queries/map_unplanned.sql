-- Which of some lines have a value in a column that no planned request has.
SELECT line_no, shown({column}) FROM given WHERE list_contains($1, line_no) AND {column} IS NOT NULL
  AND {column} NOT IN (SELECT {column} FROM wanted WHERE {column} IS NOT NULL)
