-- grain: study, task, template_id, judge, reference, category
-- question: How often does a judge see a category where people, or the majority of the other judges, see it?
-- source: the references of agreement_pairs, over all rubrics, of prompts by field (task `prompts: FIELD`); reference is
--   `people` or `others`. With people all is of what they labelled: of items in general only where that is a random part.
--   Where a judge's repeats differ, or people are split, the unit is one of n_divided and counts in part for each word, as
--   if one word of either were drawn; n_judge, n_reference and n_both count the others.
-- estimators:
--   - sensitivity: n_both / n_reference and the parts of the divided, the units where both say the category, of those where the reference does
--   - specificity: the units where neither says the category, of those where the reference does not
--   - bias: the judge's rate of the category less the reference's, (n_judge - n_reference) / n_units and parts
--   - p_mcnemar: exact McNemar test of n_judge - n_both against n_reference - n_both; takes units for independent
-- reference: Wilson intervals of sensitivity and specificity, with the effective size where a pair of items gives two
--   units, one per order; mcnemar_exact.
-- nulls: sensitivity is NULL where the reference never says the category, specificity where it always does, p_mcnemar
--   where the two never differ; its intervals and p_mcnemar are of pairs that lists imply, which are no draws.
-- note: of compliance, the row of category `true` has what is usually meant.

CREATE OR REPLACE VIEW metric_agreement_categories AS
WITH tuples AS MATERIALIZED (
  SELECT
    row_number() OVER (
      ORDER BY study, task, template_id, judge_a(agreement_pairs), provider_b, vote_a_1, vote_b_1, vote_a_2,
         vote_b_2, is_open_1, is_open_2
    ) AS tuple_no,
    dense_rank() OVER (
      ORDER BY study, task, template_id, judge_a(agreement_pairs), provider_b
    ) AS judge_no,
    study, task, template_id, judge_of_a(agreement_pairs) AS judge,
    CASE provider_b WHEN 'human' THEN 'people' ELSE 'others' END AS reference,
    vote_a_1, vote_b_1, vote_a_2, vote_b_2, n_subjects, is_listed
  FROM agreement_pairs
  WHERE (vote_a_1 IS NOT NULL OR vote_a_2 IS NOT NULL)
    AND ((provider_b = 'human' AND request_model_b = 'majority' AND provider_a <> 'human')
      OR (provider_b = 'panel' AND request_model_b = 'others'))
),
spoken AS (
  SELECT
    judge_no, tuple_no, n_subjects, string_split(vote_a_1, chr(30)) AS words_a, string_split(vote_b_1, chr(30)) AS words_b
  FROM tuples
  WHERE vote_a_1 IS NOT NULL
  UNION ALL
  SELECT judge_no, tuple_no, n_subjects, string_split(vote_a_2, chr(30)), string_split(vote_b_2, chr(30))
  FROM tuples
  WHERE vote_a_2 IS NOT NULL
),
-- each word of one with each of the other, for its part of the unit
worded AS (
  SELECT
    *, 1.0::DOUBLE / (array_length(words_a) * array_length(words_b)) AS part, unnest(words_a) AS a
  FROM spoken
),
votes AS MATERIALIZED (
  SELECT judge_no, tuple_no, n_subjects AS n, part, a, unnest(words_b) AS b
  FROM worded
),
categories AS (
  SELECT judge_no, a AS category FROM votes
  UNION
  SELECT judge_no, b AS category FROM votes
),
-- a tuple holds one or two units of the same subjects
counted AS (
  SELECT
    categories.judge_no, category, tuple_no,
    max(n) AS n,
    round(sum(part)) AS n_units,
    round(sum(CASE WHEN a = category THEN part ELSE 0.0 END), 12) AS judge,
    round(sum(CASE WHEN b = category THEN part ELSE 0.0 END), 12) AS reference,
    round(sum(CASE WHEN a = category AND b = category THEN part ELSE 0.0 END), 12) AS in_common,
    round(sum(CASE WHEN part < 1 THEN part ELSE 0.0 END)) AS n_divided,
    count(*) FILTER (WHERE a = category AND part = 1) AS n_judge,
    count(*) FILTER (WHERE b = category AND part = 1) AS n_reference,
    count(*) FILTER (WHERE a = category AND b = category AND part = 1) AS n_both
  FROM categories
  JOIN votes ON votes.judge_no = categories.judge_no
  GROUP BY categories.judge_no, category, tuple_no
),
centred AS (
  SELECT
    *,
    sum(n * in_common) OVER whole / nullif(sum(n * reference) OVER whole, 0) AS sensitivity,
    sum(n * (n_units - judge - reference + in_common)) OVER whole
      / nullif(sum(n * (n_units - reference)) OVER whole, 0) AS specificity
  FROM counted
  WINDOW whole AS (PARTITION BY judge_no, category)
),
sums AS (
  SELECT
    judge_no, category,
    CAST(sum(n * n_units) AS BIGINT) AS n_units,
    CAST(sum(n * n_divided) AS BIGINT) AS n_divided,
    CAST(sum(n * n_judge) AS BIGINT) AS n_judge,
    CAST(sum(n * n_reference) AS BIGINT) AS n_reference,
    CAST(sum(n * n_both) AS BIGINT) AS n_both,
    round(sum(n * judge), 12) AS judge,
    round(sum(n * reference), 12) AS reference,
    max(sensitivity) AS sensitivity,
    max(specificity) AS specificity,
    sum(CASE WHEN reference > 0 THEN n END) AS n_subjects_in,
    sum(CASE WHEN reference < n_units THEN n END) AS n_subjects_out,
    sqrt(sum(n * power(in_common - reference * sensitivity, 2))) AS sensitivity_error,
    sqrt(sum(n * power(n_units - judge - reference + in_common - (n_units - reference) * specificity, 2)))
      AS specificity_error
  FROM centred
  GROUP BY judge_no, category
),
judges AS (
  SELECT
    judge_no, study, task, template_id, judge, reference, bool_or(is_listed) AS is_listed
  FROM tuples
  GROUP BY judge_no, study, task, template_id, judge, reference
),
measured AS (
  SELECT
    judges.*, category, n_units, n_divided, n_judge, n_reference, n_both, sums.judge AS said, sums.reference AS referred,
    sensitivity, specificity,
    CASE WHEN is_listed THEN NULL
         WHEN sensitivity_error > 0
         THEN effective_size(sensitivity, sums.reference, sensitivity_error / sums.reference)
         ELSE n_subjects_in END AS n_effective_in,
    CASE WHEN is_listed THEN NULL
         WHEN specificity_error > 0
         THEN effective_size(specificity, n_units - sums.reference, specificity_error / (n_units - sums.reference))
         ELSE n_subjects_out END AS n_effective_out
  FROM judges
  JOIN sums ON sums.judge_no = judges.judge_no
)
SELECT
  study, task, template_id, judge.*, reference, category,
  n_units,
  n_divided,
  n_judge,
  n_reference,
  n_both,
  sensitivity,
  wilson_lo(sensitivity * n_effective_in, n_effective_in) AS sensitivity_lo,
  wilson_hi(sensitivity * n_effective_in, n_effective_in) AS sensitivity_hi,
  specificity,
  wilson_lo(specificity * n_effective_out, n_effective_out) AS specificity_lo,
  wilson_hi(specificity * n_effective_out, n_effective_out) AS specificity_hi,
  (said - referred) / n_units AS bias,
  CASE WHEN NOT is_listed THEN mcnemar_exact(n_judge - n_both, n_reference - n_both) END AS p_mcnemar
FROM measured;
