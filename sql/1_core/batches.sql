-- grain: attempt_id
-- question: What became of every batch, sent or intended, and what did it cost?
-- source: attempts, with the costs of its matched lines. cost_usd is NULL while no line with a known price has come
--   back; n_cost_unknown counts the lines whose price is not known, of those that succeeded or cannot be read.
CREATE OR REPLACE VIEW batches AS
SELECT
  attempts.*,
  spent.cost_usd,
  coalesce(spent.n_succeeded, 0) AS n_succeeded,
  coalesce(spent.n_cost_unknown, 0) AS n_cost_unknown
FROM attempts
LEFT JOIN (
  SELECT
    attempt_id,
    sum(cost_usd) AS cost_usd,
    count(*) FILTER (WHERE status IN ('succeeded', 'unreadable') AND cost_usd IS NULL) AS n_cost_unknown,
    count(*) FILTER (WHERE status = 'succeeded') AS n_succeeded
  FROM responses
  WHERE responses.match = 'matched'
  GROUP BY attempt_id
) AS spent ON spent.attempt_id = attempts.attempt_id;
