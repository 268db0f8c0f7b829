-- The rows of a file with types, defaults, and what their word for a verdict means. Of a list, whose rows are its places,
-- the pairs that it implies, as pair_judgments has them of a plan: the first of an answer's stands for its call and has
-- its cost.
WITH named AS (
  SELECT
    line_no,
    $unit || ' ' || line_no AS place,
    coalesce(study, $study) AS study,
    task,
    coalesce(template_id, 'unspecified') AS template_id,
    coalesce(rubric_id, 'unspecified') AS rubric_id,
    coalesce(provider, 'unspecified') AS provider,
    coalesce(model, request_model, 'unspecified') AS request_model,
    coalesce(thinking, 'unspecified') AS thinking,
    coalesce(unit_id, '') AS unit_id,
    item_first,
    item_second,
    candidate_first,
    candidate_second,
    TRY_CAST(whole(turn_no) AS INTEGER) AS turn_no,
    coalesce(TRY_CAST(whole(repeat_no) AS INTEGER), 1) AS repeat_no,
    CASE WHEN tie_kind(word) <> '' THEN 'tie' WHEN word IN ('first', 'second', 'tie', 'true', 'false') THEN word END AS verdict,
    CASE WHEN tie_kind(word) <> '' THEN 'tie' WHEN word IN ('first', 'second', 'true', 'false') THEN 'decided' ELSE word END AS outcome,
    coalesce(tie_kind(word), label) AS label,
    amount(score) AS score,
    amount(confidence) AS confidence,
    explanation,
    whole(input_tokens) AS input_tokens,
    whole(output_tokens) AS output_tokens,
    amount(cost_usd) AS cost_usd,
    $file || ':' || line_no AS source,
    direction,
    CASE WHEN origin = 'simulated' THEN origin END AS origin,
    purpose,
    CASE WHEN task = 'listwise' THEN CASE WHEN parser_id LIKE 'listwise-best-%' THEN 'best' ELSE 'order' END END AS list_kind,
    request_id,
    parser_id,
    list_id,
    CAST(whole(list_place) AS INTEGER) AS place_first,
    CAST(NULL AS INTEGER) AS place_second,
    CAST(whole(list_rank) AS INTEGER) AS rank_first,
    CAST(NULL AS INTEGER) AS rank_second,
    amount(points) AS points,
    whole(n_chars_first) AS n_chars_first,
    whole(n_chars_second) AS n_chars_second
  FROM judgments_given
),
implied AS (
  SELECT
    one.* REPLACE (
      coalesce(nullif(one.unit_id, ''), one.list_id) AS unit_id,
      other.item_first AS item_second,
      other.candidate_first AS candidate_second,
      other.place_first AS place_second,
      other.rank_first AS rank_second,
      other.n_chars_first AS n_chars_second,
      CASE WHEN coalesce(one.rank_first, 99) < coalesce(other.rank_first, 99) THEN 'first'
           WHEN coalesce(one.rank_first, 99) > coalesce(other.rank_first, 99) THEN 'second'
           WHEN one.rank_first IS NOT NULL THEN 'tie' END AS verdict
    ),
    one.outcome IN ('decided', 'tie') AS is_read
  FROM named AS one
  JOIN named AS other USING (
    study, template_id, rubric_id, provider, request_model, thinking, unit_id, list_id, request_id, repeat_no
  )
  WHERE one.task = 'listwise' AND other.task = 'listwise' AND other.place_first > one.place_first
),
told AS (
  SELECT
    *,
    row_number() OVER (PARTITION BY study, template_id, rubric_id, provider, request_model, thinking, unit_id, list_id,
      request_id, repeat_no ORDER BY place_first, place_second) AS pair_no,
    row_number() OVER (PARTITION BY study, template_id, rubric_id, provider, request_model, thinking, unit_id, item_first,
      item_second ORDER BY repeat_no, list_id, request_id) AS showing_no
  FROM implied
  WHERE verdict IS NOT NULL OR NOT is_read
)
SELECT * EXCLUDE (list_id)
FROM named
WHERE task <> 'listwise'
UNION ALL BY NAME
SELECT
  * EXCLUDE (list_id, is_read, pair_no, showing_no) REPLACE (
    CAST(pair_no AS INTEGER) AS turn_no,
    CAST(showing_no AS INTEGER) AS repeat_no,
    CASE WHEN is_read THEN verdict END AS verdict,
    CASE WHEN NOT is_read THEN outcome WHEN verdict = 'tie' THEN 'tie' ELSE 'decided' END AS outcome,
    CAST(NULL AS VARCHAR) AS label,
    CAST(NULL AS DOUBLE) AS score,
    CASE WHEN pair_no = 1 THEN explanation END AS explanation,
    CASE WHEN pair_no = 1 THEN input_tokens END AS input_tokens,
    CASE WHEN pair_no = 1 THEN output_tokens END AS output_tokens,
    CASE WHEN pair_no = 1 THEN cost_usd END AS cost_usd
  )
FROM told
