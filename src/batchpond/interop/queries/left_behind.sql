-- What of another lake's results does not come with a file of them: of how many rows stages made texts ({made}), whether it
-- says how long texts are, and of how many stages its judgments are, some of which may have been chosen by earlier answers.
SELECT
  count(*) FILTER (WHERE task IN ({made})),
  count(*) FILTER (WHERE task NOT IN ({made})) > 0 AND count(n_chars_first) = 0,
  count(DISTINCT stage) FILTER (WHERE task NOT IN ({made}))
FROM {given}
WHERE request_state IS NOT NULL
