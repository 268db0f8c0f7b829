-- grain: study, provider, request_model, thinking, failure, template_a, template_b
-- question: Does one template fail more often than another, with the same model?
-- source: the counts of metric_failures, for failure error, unparsed and refused, each over its own denominator.
-- estimators:
--   - rate_a, rate_b: n_failures_a / n_a, n_failures_b / n_b
--   - diff: rate of a - rate of b with Newcombe's interval
--   - p_two_sample: the pooled score test (Pearson's chi-square)
--   - q_bh: Benjamini and Hochberg's, over the study's comparisons that have a p
-- reference: Newcombe 1998 and Pearson (two_proportions); Benjamini and Hochberg 1995.
-- nulls: p is NULL when both templates fail never, or always, and where one has no calls; q_bh with it.
-- note: the test rests on large samples: with fewer than about 5 failures in all, read the interval.

CREATE OR REPLACE VIEW metric_failures_paired AS
WITH failures AS MATERIALIZED (
  SELECT study, template_id, provider, request_model, thinking, n_error, n_unparsed, n_refused, n_answered, n_returned
  FROM metric_failures
),
counted AS (
  SELECT study, template_id, provider, request_model, thinking, 'error' AS failure, n_error AS k, n_answered AS n
  FROM failures
  UNION ALL
  SELECT study, template_id, provider, request_model, thinking, 'unparsed' AS failure, n_unparsed AS k, n_returned AS n
  FROM failures
  UNION ALL
  SELECT study, template_id, provider, request_model, thinking, 'refused' AS failure, n_refused AS k, n_returned AS n
  FROM failures
),
paired AS (
  SELECT
    a.study, a.provider, a.request_model, a.thinking, a.failure,
    a.template_id AS template_a, b.template_id AS template_b,
    a.k AS n_failures_a, a.n AS n_a, b.k AS n_failures_b, b.n AS n_b,
    two_proportions_p(a.k, a.n, b.k, b.n) AS p_two_sample
  FROM counted AS a
  JOIN counted AS b
    ON b.study = a.study
    AND b.provider = a.provider
    AND b.request_model = a.request_model
    AND coalesce(b.thinking, '') = coalesce(a.thinking, '')
    AND b.failure = a.failure
    AND b.template_id > a.template_id
),
ranked AS (
  SELECT
    *,
    count(p_two_sample) OVER (PARTITION BY study) AS n_p,
    row_number() OVER (PARTITION BY study ORDER BY p_two_sample NULLS LAST) AS p_rank
  FROM paired
)
SELECT
  study, provider, request_model, thinking, failure, template_a, template_b,
  n_failures_a, n_a, n_failures_b, n_b,
  n_failures_a / nullif(n_a, 0) AS rate_a,
  n_failures_b / nullif(n_b, 0) AS rate_b,
  n_failures_a / nullif(n_a, 0) - n_failures_b / nullif(n_b, 0) AS diff,
  newcombe_lo(n_failures_a, n_a, n_failures_b, n_b) AS diff_lo,
  newcombe_hi(n_failures_a, n_a, n_failures_b, n_b) AS diff_hi,
  p_two_sample,
  CASE WHEN p_two_sample IS NOT NULL
       THEN least(1.0, min(p_two_sample * n_p / p_rank) OVER (PARTITION BY study ORDER BY p_rank DESC)) END AS q_bh
FROM ranked;
