-- The names of what one scope compares, in order.
SELECT first AS name FROM rank_counts WHERE {where}
UNION
SELECT second FROM rank_counts WHERE {where}
ORDER BY name
