-- Every cell of a study, and what became of what it asked.
SELECT
    task, stage, template_id, rubric_id, provider, request_model, thinking,
    count(*) AS n,
    count(*) FILTER (WHERE outcome = 'decided') AS n_decided,
    count(*) FILTER (WHERE outcome = 'tie') AS n_tie,
    count(*) FILTER (WHERE outcome IN ('refused', 'blocked')) AS n_refusals,
    count(*) FILTER (WHERE outcome IN
        ('unparsed', 'ambiguous', 'truncated', 'empty')) AS n_unread,
    count(*) FILTER (WHERE outcome IN ('unsure', 'not_applicable')) AS n_unsure,
    count(*) FILTER (WHERE outcome IN ('error', 'expired', 'cancelled', 'missing')) AS n_errors,
    count(*) FILTER (WHERE outcome IS NULL) AS n_open,
    sum(output_tokens) AS output_tokens,
    sum(cost_usd) AS cost_usd,
    sum(cost_usd) FILTER (WHERE origin = 'simulated') AS simulated_cost_usd
FROM calls
WHERE study = $study
GROUP BY task, stage, template_id, rubric_id, provider, request_model, thinking
ORDER BY stage, task, template_id, rubric_id, provider, request_model, thinking
