-- One side's answers of people's and models' judging, a row each. What tells comparisons apart is not NULL; for
-- compliance the rubric is a statement, over which a comparison goes. vote is about the items, not about their places.
{into}
WITH answered AS (
  {rows}
),
wide AS (
  SELECT
    *,
    CASE WHEN task IN ('pairwise', 'ranking') THEN 'pair' ELSE task END AS kind,
    item_second IS NULL OR item_first <= item_second AS lo_is_first
  FROM answered
  WHERE task IN ('pairwise', 'ranking', 'compliance', 'likert', 'pressure', 'prompts')
    AND (item_second IS NOT NULL) = (task IN ('pairwise', 'ranking'))
    AND coalesce(item_first, candidate_first) IS NOT NULL
    AND provider <> 'human'
)
SELECT
  $side AS side,
  $study AS study,
  kind AS task,
  coalesce(template_id, '') AS template_id,
  CASE WHEN kind = 'compliance' THEN '' ELSE coalesce(rubric_id, '') END AS rubric_id,
  provider, request_model,
  coalesce(thinking, '') AS thinking,
  CASE WHEN kind = 'pair' THEN '' ELSE coalesce(candidate_first, '') END AS candidate,
  CASE WHEN kind = 'compliance' THEN coalesce(rubric_id, '') ELSE '' END AS statement,
  coalesce(unit_id, '') AS unit_id,
  CASE WHEN lo_is_first THEN coalesce(item_first, candidate_first) ELSE item_second END AS item_lo,
  CASE WHEN lo_is_first THEN coalesce(item_second, '') ELSE item_first END AS item_hi,
  candidate_first IS NOT NULL AS is_of_unit,
  coalesce(turn_no, 0) AS turn_no,
  lo_is_first AS is_lo_first,
  CASE WHEN kind <> 'pair' THEN CASE WHEN outcome IN ('decided', 'tie') THEN coalesce(verdict, label) END
       WHEN verdict = 'tie' THEN 'tie'
       WHEN verdict IN ('first', 'second') THEN CASE WHEN (verdict = 'first') = lo_is_first THEN 'lo' ELSE 'hi' END END
    AS vote,
  CASE WHEN outcome IN ('decided', 'tie') THEN score END AS score,
  outcome, cost_usd, request_id, origin
FROM wide
WHERE coalesce(list_contains(CAST($template AS VARCHAR[]), coalesce(template_id, '')), TRUE)
  AND coalesce(list_contains(CAST($rubric AS VARCHAR[]), coalesce(rubric_id, '')), TRUE)
  AND coalesce(list_contains(CAST($provider AS VARCHAR[]), provider), TRUE)
  AND coalesce(list_contains(CAST($model AS VARCHAR[]), request_model), TRUE)
  AND coalesce(list_contains(CAST($thinking AS VARCHAR[]), coalesce(thinking, '')), TRUE)
  AND coalesce(list_contains(CAST($candidate AS VARCHAR[]), coalesce(candidate_first, '')), TRUE)
  AND coalesce(list_contains(CAST($repeat AS VARCHAR[]), CAST(repeat_no AS VARCHAR)), TRUE)
