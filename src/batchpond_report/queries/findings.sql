-- What the sentences of several sections say in the same way: beside whom somebody stands, and of which cell that is.

-- The others of a cell that have the same value, as told behind a name; nothing where there are none.
CREATE TEMP MACRO equally_with(name, value, cell) AS coalesce(
  ' (equally with ' || CASE
    WHEN count(*) OVER (PARTITION BY cell, round(value, 9)) > 4
      THEN (count(*) OVER (PARTITION BY cell, round(value, 9)) - 1) || ' others'
    ELSE string_agg(name, ', ') OVER (
      PARTITION BY cell, round(value, 9) ORDER BY name
      ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)
  END || ')', '');

-- What tells a row's cell apart among all rows, beside its judge; a rubric that the sentence says itself is NULL. A panel
-- has no thinking of its own.
CREATE TEMP MACRO where_of(template_id, rubric_id, provider, thinking, model) AS coalesce(
  ' (' || nullif(concat_ws(
    ', ',
    CASE WHEN min(template_id) OVER () < max(template_id) OVER () THEN 'template ' || template_id END,
    CASE WHEN min(rubric_id) OVER () < max(rubric_id) OVER () THEN 'rubric ' || rubric_id END,
    CASE WHEN min(provider) OVER (PARTITION BY model) < max(provider) OVER (PARTITION BY model) THEN 'provider ' || provider END,
    CASE
      WHEN provider <> 'panel'
        AND min(CASE WHEN provider <> 'panel' THEN thinking END) OVER ()
          < max(CASE WHEN provider <> 'panel' THEN thinking END) OVER ()
        THEN 'thinking ' || thinking
    END
  ), '') || ')', '');

-- Judges that a stage asked about a part alone, chosen by earlier answers: of how many questions, of how many that it chose
-- from, and by which condition. What such a judge says is said of that part.
CREATE TEMP VIEW chosen_parts AS
WITH stages AS (
  SELECT studies_current.study, unnest(json_extract(config, '$.stages[*]')) AS stage
  FROM studies
  JOIN studies_current ON studies_current.study = studies.study AND studies_current.study_version = studies.study_version
),
choices AS (
  SELECT study, stage ->> '$.name' AS stage, stage ->> '$.rows.stage' AS source, stage ->> '$.rows.where' AS condition
  FROM stages
  WHERE (stage ->> '$.rows.where') IS NOT NULL AND (stage ->> '$.rows.stage') IS NOT NULL
),
asked AS (
  SELECT
    study, stage, task, template_id, provider, request_model, thinking,
    count(DISTINCT (rubric_id, unit_id, item_first, item_second, candidate_first, turn_no)) AS n
  FROM plan_current
  WHERE study IN (SELECT study FROM choices)
  GROUP BY study, stage, task, template_id, provider, request_model, thinking
)
SELECT
  choices.study, choices.stage, chosen.task, chosen.template_id, chosen.provider, chosen.request_model, chosen.thinking,
  chosen.n AS n_chosen, max(whole.n) AS n_whole, min(whole.request_model) AS whole_judge, condition
FROM choices
JOIN asked AS chosen ON chosen.study = choices.study AND chosen.stage = choices.stage
JOIN asked AS whole ON whole.study = choices.study AND whole.stage = choices.source AND whole.task = chosen.task
GROUP BY ALL
HAVING n_chosen < n_whole;
