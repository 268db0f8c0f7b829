-- grain: study
-- question: What is in each study, and how much of it is there?
-- source: metric_completion, added up over cells; what was presented from the current plan and imported judgments.
--   n_templates are those that models were asked by; what has no rubric adds none to n_rubrics;
--   n_judges counts judges of models (cell), n_raters the raters of imported labels, and n_expected, n_answered (of
--   these n_failed ended in an error, expired, were cancelled or are missing) and n_valid are judgments of both: answers
--   that are themselves what is judged are n_answers of n_answers_expected, by n_candidates models, and n_given of them are
--   no error, refusal or the like. n_candidates_judged are these and those whose answers were given, not asked for here. n_items are the things judged, n_units what comparisons stay within.
--   origins are those of the cells, in binary order (mixed: a cell's answers come from several).
--   is_open is TRUE while any of n_pending answers is to come, or questions of a stage or round that follows from answers.
CREATE OR REPLACE VIEW report_facts AS
WITH cells AS (
  SELECT
    study,
    concat_ws(', ',
      max(CASE WHEN origin = 'batch' THEN origin END),
      max(CASE WHEN origin = 'files' THEN origin END),
      max(CASE WHEN origin = 'imported' THEN origin END),
      max(CASE WHEN origin = 'live' THEN origin END),
      max(CASE WHEN origin = 'mixed' THEN origin END),
      max(CASE WHEN origin = 'simulated' THEN origin END)
    ) AS origins,
    count(*) AS n_cells,
    count(DISTINCT CASE WHEN provider <> 'human' THEN template_id END) AS n_templates,
    count(DISTINCT nullif(rubric_id, '')) AS n_rubrics,
    count(DISTINCT CASE
      WHEN is_judgment AND provider <> 'human'
        THEN judge(metric_completion)
    END) AS n_judges,
    count(DISTINCT CASE WHEN is_judgment AND provider = 'human' THEN request_model END) AS n_raters,
    count(DISTINCT CASE WHEN NOT is_judgment THEN provider || chr(31) || request_model END) AS n_candidates,
    CAST(sum(CASE WHEN is_judgment THEN n_planned ELSE 0 END) AS BIGINT) AS n_expected,
    CAST(sum(CASE WHEN is_judgment THEN n_answered ELSE 0 END) AS BIGINT) AS n_answered,
    CAST(sum(CASE WHEN is_judgment THEN n_valid ELSE 0 END) AS BIGINT) AS n_valid,
    CAST(sum(CASE WHEN is_judgment THEN n_error + n_expired + n_cancelled + n_missing ELSE 0 END) AS BIGINT) AS n_failed,
    CAST(sum(CASE WHEN is_judgment THEN 0 ELSE n_planned END) AS BIGINT) AS n_answers_expected,
    CAST(sum(CASE WHEN is_judgment THEN 0 ELSE n_answered END) AS BIGINT) AS n_answers,
    CAST(sum(CASE WHEN is_judgment THEN 0 ELSE n_valid END) AS BIGINT) AS n_given,
    CAST(sum(n_planned - n_answered) AS BIGINT) AS n_pending
  FROM metric_completion
  GROUP BY study
),
presented AS (
  SELECT study, task, unit_id, item_first, item_second, candidate_first, candidate_second FROM plan_current
  UNION ALL
  SELECT
    study, coalesce(task, 'pairwise') AS task, unit_id, item_first, item_second, candidate_first, candidate_second
  FROM imported_judgments
),
counts AS (
  SELECT
    study,
    concat_ws(', ',
      max(CASE WHEN task = 'compliance' THEN task END),
      max(CASE WHEN task = 'conversation' THEN task END),
      max(CASE WHEN task = 'generation' THEN task END),
      max(CASE WHEN task = 'inputs' THEN task END),
      max(CASE WHEN task = 'likert' THEN task END),
      max(CASE WHEN task = 'listwise' THEN task END),
      max(CASE WHEN task = 'pairwise' THEN task END),
      max(CASE WHEN task = 'pressure' THEN task END),
      max(CASE WHEN task = 'prompts' THEN task END),
      max(CASE WHEN task = 'ranking' THEN task END)
    ) AS tasks,
    count(DISTINCT nullif(unit_id, '')) AS n_units
  FROM presented
  GROUP BY study
),
judged AS (
  SELECT study, count(DISTINCT item) AS n_items, count(DISTINCT candidate) AS n_judged
  FROM (
    SELECT study, item_first AS item, candidate_first AS candidate FROM presented WHERE item_first IS NOT NULL
    UNION
    SELECT study, item_second AS item, candidate_second AS candidate FROM presented WHERE item_second IS NOT NULL
  ) AS named
  GROUP BY study
),
rounds AS (
  SELECT events.study, max_by(events.state, events.ord) = 'incomplete' AS is_open
  FROM events
  JOIN studies_current AS planned
    ON planned.study = events.study AND planned.study_version = events.study_version
  WHERE events.kind = 'round'
  GROUP BY events.study
)
SELECT
  cells.study,
  counts.tasks,
  cells.origins,
  cells.n_cells,
  cells.n_templates,
  cells.n_rubrics,
  cells.n_judges,
  cells.n_raters,
  coalesce(judged.n_items, 0) AS n_items,
  counts.n_units,
  cells.n_expected,
  cells.n_answered,
  cells.n_valid,
  cells.n_failed,
  cells.n_candidates,
  cells.n_answers_expected,
  cells.n_answers,
  cells.n_given,
  greatest(cells.n_candidates, coalesce(judged.n_judged, 0)) AS n_candidates_judged,
  cells.n_pending,
  cells.n_pending > 0 OR coalesce(rounds.is_open, FALSE) AS is_open
FROM cells
JOIN counts ON counts.study = cells.study
LEFT JOIN judged ON judged.study = cells.study
LEFT JOIN rounds ON rounds.study = cells.study;
