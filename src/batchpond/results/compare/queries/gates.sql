-- What each gate says of each comparison that has its metric, `main` being the task's own. Worse is where the whole
-- interval of the harm is beyond delta; by a margin, where not all of it is within (non-inferiority); NULL without one,
-- and where no item has a value on both sides.
WITH gates AS (
  SELECT unnest($metrics) AS gate, unnest($deltas) AS delta
),
harms AS (
  SELECT
    *,
    CASE better WHEN 'lower' THEN delta ELSE 0 - delta END AS limit_at,
    CASE better WHEN 'lower' THEN diff_lo ELSE -diff_hi END AS harm_lo,
    CASE better WHEN 'lower' THEN diff_hi ELSE -diff_lo END AS harm_hi
  FROM gates
  JOIN compare_metrics ON metric = gate OR (gate = 'main' AND is_main)
  WHERE better IS NOT NULL
),
judged AS (
  SELECT *, CASE WHEN $is_margin THEN harm_hi >= delta ELSE harm_lo > delta END AS is_worse
  FROM harms
)
SELECT
  gate, comparison_no, metric, is_worse,
  format('{}: {} of comparison {} is {:.4g}, was {:.4g}; ',
    CASE is_worse WHEN TRUE THEN 'worse' WHEN FALSE THEN 'not worse' ELSE 'undecided' END,
    metric, comparison_no, value_b, value_a)
    || CASE WHEN is_worse IS NULL
            THEN CASE WHEN n_clusters >= 5 THEN 'all differ by the same, which shows no spread, so there is no interval to decide on'
                      ELSE format('{} {}s are fewer than 5, so there is no interval to decide on', n_clusters, clustered_by) END
            ELSE format('{} - a {:+.4g}, 95 % {:+.4g} to {:+.4g}, {} {} {:+g}', side, diff, diff_lo, diff_hi,
              CASE WHEN $is_margin THEN 'must be' ELSE 'is worse if' END,
              CASE WHEN (better = 'lower') = $is_margin THEN 'below' ELSE 'above' END, limit_at) END AS says
FROM judged
UNION ALL
SELECT
  gate, comparison_no, metric, NULL,
  format('undecided: {} of comparison {} has no value on both sides: of {} in both, a has it of {}, {} of {}',
    metric, comparison_no, n_common, n_a, side, n_b)
FROM gates
JOIN compare_unmatched ON metric = gate OR (gate = 'main' AND is_main)
JOIN compare_comparisons USING (comparison_no)
ORDER BY comparison_no, metric
