-- grain: study, cell
-- question: How much of each cell was expected, answered, usable, lost, and given more than once?
-- source: metric_completion, with what came more than once from coverage. n_expected = n_answered + n_pending, and
--   n_answered = n_valid + n_no_verdict + n_failed: a verdict, an answer without one, or no answer for good (error,
--   expired, cancelled, missing). n_missing is a part of n_failed. n_extra counts further answers to the cell's requests.
--   is_judgment: false for answers that are themselves what is judged.
-- Of imported judgments nobody knows what was expected: n_expected is then what the files hold.
CREATE OR REPLACE VIEW report_coverage AS
WITH completion AS (
  SELECT *, cell(metric_completion) AS cell FROM metric_completion
)
SELECT
  completion.study,
  cell.*,
  completion.n_planned AS n_expected,
  completion.n_answered,
  completion.n_valid,
  completion.n_answered - completion.n_valid
    - completion.n_error - completion.n_expired - completion.n_cancelled - completion.n_missing AS n_no_verdict,
  completion.n_error + completion.n_expired + completion.n_cancelled + completion.n_missing AS n_failed,
  completion.n_missing,
  completion.n_pending,
  coalesce(coverage.n_extra, 0) + coalesce(coverage.n_duplicate, 0) + coalesce(coverage.n_conflict, 0) AS n_extra,
  completion.valid_rate,
  completion.valid_rate_lo,
  completion.valid_rate_hi,
  completion.origin,
  completion.is_judgment
FROM completion
LEFT JOIN coverage
  ON coverage.study = completion.study
  AND cell(coverage) = cell;
