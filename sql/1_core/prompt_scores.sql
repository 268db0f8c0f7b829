-- grain: study, template_id, judge, candidate, prompt
-- question: How many of the points that a prompt's criteria give does a candidate's answer earn, by one judge?
-- source: item_judgments of task compliance with criteria_points; what is met earns its points, or takes them (Arora et
--   al. 2025, HealthBench). prompt is the unit, or the item without one; n_valid criteria have a verdict, n_open are
--   unread or unanswered. score is the points of what is met over the sum of those above 0, among criteria with a
--   verdict; where a judge was asked several times, the share of its verdicts; where a candidate has several answers,
--   their mean. score_min and score_max have all open criteria at their worst, and at their best. What does not apply
--   is of neither sum; score is NULL where no criterion above 0 has a verdict.

CREATE OR REPLACE VIEW prompt_scores AS
WITH criteria AS (
  SELECT
    item_judgments.study, template_id, item_judgments.rubric_id, judge(item_judgments) AS judge, candidate,
    coalesce(nullif(unit_id, ''), item) AS prompt,
    item,
    max(points) AS points,
    count(*) FILTER (WHERE verdict = 'true') / nullif(count(*) FILTER (WHERE verdict IN ('true', 'false')), 0) AS met,
    count(*) FILTER (WHERE coalesce(outcome, '') <> 'not_applicable') AS n_applicable
  FROM item_judgments
  JOIN criteria_points
    ON criteria_points.study = item_judgments.study
    AND criteria_points.rubric_id = item_judgments.rubric_id
  WHERE task = 'compliance'
  GROUP BY
    item_judgments.study, template_id, item_judgments.rubric_id, judge, candidate,
    coalesce(nullif(unit_id, ''), item), item
),
answers AS (
  SELECT
    study, template_id, judge, candidate, prompt, item,
    count(met) AS n_valid,
    count(*) FILTER (WHERE met IS NULL AND n_applicable > 0) AS n_open,
    sum(points * met) AS earned,
    coalesce(sum(points * met), 0) + coalesce(sum(points) FILTER (WHERE met IS NULL AND n_applicable > 0 AND points < 0), 0)
      AS earned_min,
    coalesce(sum(points * met), 0) + coalesce(sum(points) FILTER (WHERE met IS NULL AND n_applicable > 0 AND points > 0), 0)
      AS earned_max,
    sum(points) FILTER (WHERE met IS NOT NULL AND points > 0) AS possible,
    sum(points) FILTER (WHERE (met IS NOT NULL OR n_applicable > 0) AND points > 0) AS possible_of_all
  FROM criteria
  GROUP BY study, template_id, judge, candidate, prompt, item
)
SELECT
  study, template_id, judge.*, candidate, prompt,
  CAST(sum(n_valid) AS BIGINT) AS n_valid,
  CAST(sum(n_open) AS BIGINT) AS n_open,
  avg(earned / possible) AS score,
  avg(earned_min / possible_of_all) AS score_min,
  avg(earned_max / possible_of_all) AS score_max
FROM answers
GROUP BY study, template_id, judge, candidate, prompt;
