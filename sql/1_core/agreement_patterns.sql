-- grain: pattern_no
-- question: Which sets of votes did items, or pairs, get from their judges, and how many got each?
-- source: agreement_votes. ballots lists, in binary order, the votes on one item or pair: kind, provider, model,
--   thinking, vote_1 and vote_2, apart by the character 31; kind is `model`, `person` (a judge of provider human) or
--   `truth` (what people hold together). n_subjects items or pairs of the study, task and template have the very list,
--   over all rubrics. Judges mostly agree, so there are few patterns, and everything about agreement is made of them.

CREATE OR REPLACE VIEW agreement_patterns AS
WITH ballots AS (
  SELECT
    study, task, template_id,
    list_sort(list(
      CASE WHEN provider <> 'human' THEN 'model' WHEN request_model = 'majority' THEN 'truth' ELSE 'person' END
      || chr(31) || provider || chr(31) || request_model || chr(31) || coalesce(thinking, '')
      || chr(31) || coalesce(vote_1, '') || chr(31) || coalesce(vote_2, '')
    )) AS ballots
  FROM agreement_votes
  GROUP BY study, task, template_id, rubric_id, unit_id, item_lo, item_hi, turn_no
),
patterns AS (
  SELECT study, task, template_id, ballots, count(*) AS n_subjects
  FROM ballots
  GROUP BY study, task, template_id, ballots
)
SELECT
  row_number() OVER (ORDER BY study, task, template_id, ballots) AS pattern_no,
  study, task, template_id, ballots, n_subjects
FROM patterns;
