-- The comparisons: what is in both sides and what is not, what they agree on, and what each side's calls cost.
WITH counts AS (
  SELECT
    comparison_no,
    count(*) FILTER (WHERE a IS NOT NULL AND b IS NOT NULL) AS n_common,
    count(*) FILTER (WHERE b IS NULL) AS n_a_only,
    count(*) FILTER (WHERE a IS NULL) AS n_b_only,
    count(*) FILTER (WHERE a.said = b.said) AS n_same,
    count(*) FILTER (WHERE a.said <> b.said) AS n_flipped,
    count(*) FILTER (WHERE [a.said, b.said] IN (['lo', 'hi'], ['hi', 'lo'], ['true', 'false'], ['false', 'true']))
      AS n_reversed,
    CAST(coalesce(sum(a.n_calls - a.n_answered), 0) AS BIGINT) AS n_pending_a,
    CAST(coalesce(sum(b.n_calls - b.n_answered), 0) AS BIGINT) AS n_pending_b,
    sum(a.cost_usd) AS cost_a_usd,
    sum(b.cost_usd) AS cost_b_usd,
    sum(a.simulated_usd) AS cost_a_simulated_usd,
    sum(b.simulated_usd) AS cost_b_simulated_usd,
    CAST(coalesce(sum(a.n_answered - a.n_priced), 0) AS BIGINT) AS n_cost_unknown_a,
    CAST(coalesce(sum(b.n_answered - b.n_priced), 0) AS BIGINT) AS n_cost_unknown_b
  FROM compare_paired
  GROUP BY comparison_no
),
simulated AS (
  SELECT
    comparison_no,
    CASE WHEN cost_a_simulated_usd IS NULL THEN ''
         WHEN cost_a_simulated_usd >= 0.999999 * cost_a_usd THEN ' (simulated, not spent)'
         ELSE format(' (${:,.4f} of it simulated, not spent)', cost_a_simulated_usd) END AS simulated_a,
    CASE WHEN cost_b_simulated_usd IS NULL THEN ''
         WHEN cost_b_simulated_usd >= 0.999999 * cost_b_usd THEN ' (simulated, not spent)'
         ELSE format(' (${:,.4f} of it simulated, not spent)', cost_b_simulated_usd) END AS simulated_b
  FROM counts
),
agreed AS (
  SELECT
    comparison_no,
    value_b AS agreement,
    n AS n_agreement,
    wilson_clustered(value_b, n, diff_se, n_clusters) AS ends,
    wilson_lo(value_b * n, n) AS lo_these_items,
    wilson_hi(value_b * n, n) AS hi_these_items
  FROM compare_metrics
  WHERE metric = 'agreement'
)
SELECT
  compared.*,
  CASE WHEN (SELECT max(side) FROM compare_comparisons) > 'b' THEN side || ': ' ELSE '' END || (SELECT string_agg(key || ' ' || CASE WHEN a = b THEN a ELSE a || ' -> ' || b END, ', ')
   FROM (VALUES ('template', template_a, template_b), ('rubric', rubric_a, rubric_b),
     ('provider', provider_a, provider_b), ('model', request_model_a, request_model_b),
     ('thinking', thinking_a, thinking_b), ('candidate', candidate_a, candidate_b)) AS cell (key, a, b)
   WHERE a <> '' OR b <> '') AS what,
  format('{:,} {} in both, {:,} in a alone, {:,} in {} alone',
      n_common, CASE WHEN task = 'pair' THEN 'pairs' ELSE 'items' END, n_a_only, n_b_only, side)
    || coalesce(format('; the same said of {:,} of {:,} ({:.1f} %', n_same, n_same + n_flipped, 100 * agreement)
      || coalesce(format(', {:.1f} to {:.1f}', 100 * ends.lo, 100 * ends.hi), '')
      || CASE WHEN abs(agreement * (n_same + n_flipped) - n_same) > 1e-6 OR n_agreement > n_same + n_flipped
              THEN ' of all votes' ELSE '' END
      || format('), the opposite of {:,}', n_reversed), '')
    || format('; a cost {}{}, {} {}{}', coalesce('$' || format('{:,.4f}', cost_a_usd), 'unknown'), simulated_a, side,
      coalesce('$' || format('{:,.4f}', cost_b_usd), 'unknown'), simulated_b) AS says,
  n_common, n_a_only, n_b_only, n_same, n_flipped, n_reversed,
  agreement, ends.lo AS agreement_lo, ends.hi AS agreement_hi,
  lo_these_items AS agreement_lo_these_items, hi_these_items AS agreement_hi_these_items,
  n_pending_a, n_pending_b, cost_a_usd, cost_b_usd, cost_a_simulated_usd, cost_b_simulated_usd, n_cost_unknown_a, n_cost_unknown_b
FROM compare_comparisons AS compared
JOIN counts USING (comparison_no)
JOIN simulated USING (comparison_no)
LEFT JOIN agreed USING (comparison_no)
ORDER BY comparison_no
