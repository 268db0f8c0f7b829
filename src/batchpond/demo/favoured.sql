-- What the demo's table finds of what was planted, as it is printed: a line per model, and below it one per template.
WITH lines AS (
  SELECT
    request_model, template_id,
    format('  {}', template_id) AS name,
    format('{:,}', n_pairs) AS n_pairs,
    format('{:.3f}', consistency_decided) AS consistent,
    format('{:.2f} to {:.2f}', consistency_decided_lo, consistency_decided_hi) AS consistent_ends,
    format('{:.2f}', position_logodds) AS logodds,
    format('{:.2f} to {:.2f}', position_logodds_lo, position_logodds_hi) AS logodds_ends,
    format('{:.2g}', q_bh) AS q
  FROM report_consistency
  WHERE study = 'demo'
  UNION ALL
  SELECT DISTINCT request_model, '', request_model, '', '', '', '', '', ''
  FROM report_consistency
  WHERE study = 'demo'
)
SELECT
  name, coalesce(n_pairs, '-'), coalesce(consistent, '-'), coalesce(consistent_ends, '-'), coalesce(logodds, '-'),
  coalesce(logodds_ends, '-'), coalesce(q, '-')
FROM lines
ORDER BY request_model, template_id
