-- What came back of the demo, as it is printed: a row per model.
SELECT
  request_model,
  format('{:,}', sum(n_planned)::BIGINT),
  format('{:,}', sum(n_answered)::BIGINT),
  format('{:,}', sum(n_decided)::BIGINT),
  format('{:,}', sum(n_tie)::BIGINT),
  format('{:,}', sum(n_ambiguous)::BIGINT),
  format('{:,}', sum(n_unparsed)::BIGINT),
  format('{:,}', sum(n_refused)::BIGINT),
  format('{:,}', sum(n_answered - n_decided - n_tie - n_ambiguous - n_unparsed - n_refused)::BIGINT)
FROM metric_completion
WHERE study = 'demo'
GROUP BY request_model
ORDER BY request_model
