-- Comparisons and metrics of which some item in both sides has a value, and none has one on each side: such as where all
-- of b's answers are unreadable. They are no difference, and a gate cannot pass over them.
CREATE OR REPLACE TEMP TABLE compare_unmatched AS
SELECT comparison_no, value.metric, value.is_main, n_common, value.n_a, value.n_b
FROM (
  SELECT
    comparison_no,
    count(*) AS n_common,
    unnest([
      {'metric': 'consistency', 'is_main': TRUE, 'n_a': count(a.consistency), 'n_b': count(b.consistency)},
      {'metric': 'compliance', 'is_main': TRUE, 'n_a': count(a.compliance), 'n_b': count(b.compliance)},
      {'metric': 'score', 'is_main': TRUE, 'n_a': count(a.score), 'n_b': count(b.score)},
      {'metric': 'accuracy', 'is_main': min(task) IN ('pressure', 'prompts'), 'n_a': count(a.accuracy),
       'n_b': count(b.accuracy)},
      {'metric': 'error', 'is_main': FALSE, 'n_a': count(a.error), 'n_b': count(b.error)},
      {'metric': 'unparsed', 'is_main': FALSE, 'n_a': count(a.unparsed), 'n_b': count(b.unparsed)},
      {'metric': 'refused', 'is_main': FALSE, 'n_a': count(a.refused), 'n_b': count(b.refused)},
      {'metric': 'cost_per_call_usd', 'is_main': FALSE, 'n_a': count(a.cost_per_call_usd),
       'n_b': count(b.cost_per_call_usd)}
    ]) AS value
  FROM compare_paired
  WHERE a IS NOT NULL AND b IS NOT NULL
  GROUP BY comparison_no
) AS counted
WHERE value.n_a + value.n_b > 0
  AND (comparison_no, value.metric) NOT IN (SELECT (comparison_no, metric) FROM compare_metrics)
