-- grain: study, cell, candidate
-- question: How often does a candidate model comply with one statement, by one judge?
-- source: item_status of task compliance. An item counts by the part of a judge's verdicts on it that are true
--   (true_part), so that asking more often moves no rate; n_compliant counts those on which most are.
-- estimators:
--   - compliance: the mean over the n_valid items, with a Wilson interval; where repeats split wilson_mean, items being
--     draws; where a prompt (unit_id) has several outputs wilson_clustered by prompts, of no more observations than the
--     outputs are worth as draws, those that show no spread counting as one a prompt
--   - compliance_min, compliance_max: what the n_null items, answered without a verdict and out of the rate, leave
--     open: all of them failed, or all complied
-- reference: SpecEval, which reports compliance_min; wilson_clustered, wilson_mean.
-- nulls: compliance is NULL where n_valid is 0, its bounds where nothing is answered, its interval where prompts have
--   several outputs also below 5 prompts.
-- note: provider `panel` is the majority of the judges, `human` the people; filter by provider before adding up rows.

CREATE OR REPLACE VIEW metric_compliance AS
WITH prompts AS (
  SELECT
    study, cell(item_status) AS cell, candidate,
    coalesce(nullif(unit_id, ''), item) AS prompt,
    count(*) FILTER (WHERE status <> 'pending') AS n_answered,
    count(true_part) AS n_valid,
    count(*) FILTER (WHERE true_part > 0.5) AS n_compliant,
    count(*) FILTER (WHERE status <> 'pending' AND true_part IS NULL) AS n_null,
    count(*) FILTER (WHERE status = 'pending') AS n_pending,
    sum(true_part) AS complied,
    sum(true_part * true_part) AS squares
  FROM item_status
  WHERE task = 'compliance'
  GROUP BY study, cell, candidate, coalesce(nullif(unit_id, ''), item)
),
counts AS (
  SELECT
    study, cell, candidate,
    CAST(sum(n_answered) AS BIGINT) AS n_answered,
    CAST(sum(n_valid) AS BIGINT) AS n_valid,
    CAST(sum(n_compliant) AS BIGINT) AS n_compliant,
    CAST(sum(n_null) AS BIGINT) AS n_null,
    CAST(sum(n_pending) AS BIGINT) AS n_pending,
    count(*) FILTER (WHERE n_valid > 0) AS n_prompts,
    round(sum(complied), 9) AS complied,
    sum(squares) AS squares,
    CAST(sum(complied * complied) AS DOUBLE) AS yes_yes,
    CAST(sum(complied * n_valid) AS DOUBLE) AS yes_all,
    CAST(sum(CASE WHEN complied IS NOT NULL THEN n_valid * n_valid END) AS DOUBLE) AS all_all
  FROM prompts
  GROUP BY study, cell, candidate
),
rated AS (
  SELECT *, complied / nullif(n_valid, 0) AS compliance
  FROM counts
),
spread AS (
  SELECT
    *,
    greatest(0.0, yes_yes - 2 * compliance * yes_all + compliance * compliance * all_all) AS by_prompt,
    CASE WHEN squares - compliance * complied > 1e-9 THEN squares - compliance * complied ELSE 0.0 END AS by_output
  FROM rated
),
sized AS (
  SELECT *, mean_size(compliance, n_valid, sqrt(by_output) / nullif(n_valid, 0)) AS n_most
  FROM spread
),
bounded AS (
  SELECT
    *,
    n_valid > n_prompts AS is_clustered,
    abs(squares - complied) < 1e-9 AS is_one_word,
    wilson_mean(compliance, n_valid, sqrt(by_output / nullif(n_valid - 1, 0)) / sqrt(n_valid)) AS ends,
    wilson_clustered(compliance,
      CASE WHEN by_prompt > 1e-9 THEN n_most ELSE n_prompts END,
      CASE WHEN by_prompt > 1e-9 AND n_prompts > 1 THEN sqrt(by_prompt * n_prompts / (n_prompts - 1)) / n_valid END,
      n_prompts) AS clustered_ends
  FROM sized
)
SELECT
  study, cell.*, candidate,
  n_answered, n_valid, n_compliant, n_null, n_pending,
  compliance,
  CASE WHEN is_clustered THEN clustered_ends.lo
       WHEN is_one_word THEN wilson_lo(complied, n_valid) ELSE ends.lo END AS compliance_lo,
  CASE WHEN is_clustered THEN clustered_ends.hi
       WHEN is_one_word THEN wilson_hi(complied, n_valid) ELSE ends.hi END AS compliance_hi,
  coalesce(complied, 0) / nullif(n_answered, 0) AS compliance_min,
  (coalesce(complied, 0) + n_null) / nullif(n_answered, 0) AS compliance_max
FROM bounded;
