-- How many requests of b there are, and how many of them a asks too: these were asked once, and have one answer.
SELECT count(*), count(*) FILTER (WHERE request_id IN (SELECT request_id FROM compare_said WHERE side = 'a'))
FROM compare_said
WHERE side = 'b' AND request_id IS NOT NULL
