-- grain: study, task, rubric_id, word
-- question: How often does a cascade say a word, and how often would its further judges, had they been asked about all?
-- source: cascade_verdicts with a further judge, of units whose first judges have answered. n_decided have a verdict, n_said this one. The
--   further judges spoke on n_heard, n_heard_differed on which the first judges differ and n_heard_agreed audits, drawn
--   at random among the units on which these agree, the others stand-ins for an answer that was lacking then, which
--   correct nothing; of n_heard they said the word on n_further_said.
-- estimators:
--   - share: n_said / n_decided, the cascade's verdicts on all units, the agreed ones and the others in their proportion:
--     with two first judges and one further one, what the majority of all three says
--   - share_min, share_max: the units without a verdict do not get this one, or all get it
--   - heard_share: n_further_said / n_heard, of what the further judges were asked about alone: chosen because others
--     differ there, it says little of all units
--   - further_share: that rate corrected for how the units were chosen: on units that differ what the further judges say,
--     on agreed ones what the first judges say, corrected by the mean difference of the two on the audits (the difference
--     estimator, which weighs an audit by the inverse of its chance)
--   - share_se, further_share_se: for items in general (clustered_variance, each item or prompt left out in turn), and
--     the ends _lo and _hi with them, as wilson_clustered; of a unit, further_share's is that of what stands for its word,
--     and of the correction, with half an audit more counted on which they differ, and half on which they do not
--     (conservative: .995 of .95 are covered where nearly all audits confirm); a further_share of 0 or 1 counts as the
--     draws that audits and what was heard are worth, each for its part of the units
-- reference: Neyman 1938 (double sampling); Cochran 1977, 12.9 (the difference estimator); clustered, wilson_clustered.
-- nulls: further_share is NULL where units agree and none is audited, ends below 5 items or prompts (audited ones). Of
--   pairs, lo and hi are items by id: only their ties say something of a study.

CREATE OR REPLACE VIEW metric_cascade_words AS
WITH units AS MATERIALIZED (
  SELECT
    study, task, rubric_id, unit_id, item_lo, item_hi, is_of_unit, is_stand_in, verdict, first_word,
    further_word,
    CASE WHEN is_agreed THEN 1 ELSE 0 END AS agreed
  FROM cascade_verdicts
  WHERE is_agreed IS NOT NULL AND n_further > 0
),
spoken AS (
  SELECT study, task, rubric_id, verdict AS word FROM units
  UNION ALL
  SELECT study, task, rubric_id, further_word AS word FROM units
),
words AS (
  SELECT DISTINCT study, task, rubric_id, word
  FROM spoken
  WHERE word IS NOT NULL
),
-- for each word: the verdict, what is known of all that agree, audits and how they differ, and what others were told
scored AS (
  SELECT
    units.study, units.task, units.rubric_id, words.word, unit_id, item_lo, item_hi, is_of_unit, agreed,
    CASE WHEN verdict IS NULL THEN 0 ELSE 1 END AS decided,
    CASE WHEN verdict = words.word THEN 1 ELSE 0 END AS said,
    CASE WHEN agreed = 1 AND first_word = words.word THEN 1 ELSE 0 END AS agreed_said,
    CASE WHEN agreed = 1 AND further_word IS NOT NULL AND NOT is_stand_in THEN 1 ELSE 0 END AS audited,
    CASE WHEN agreed = 0 OR further_word IS NULL OR is_stand_in THEN 0 WHEN further_word = first_word THEN 0
         WHEN further_word = words.word THEN 1 WHEN first_word = words.word THEN -1 ELSE 0 END AS audit_moved,
    CASE WHEN agreed = 0 AND further_word IS NOT NULL THEN 1 ELSE 0 END AS heard,
    CASE WHEN agreed = 0 AND further_word = words.word THEN 1 ELSE 0 END AS heard_said,
    CASE WHEN further_word IS NOT NULL THEN 1 ELSE 0 END AS further_heard,
    CASE WHEN further_word = words.word THEN 1 ELSE 0 END AS further_said
  FROM units
  JOIN words
    ON words.study = units.study
    AND words.task = units.task
    AND words.rubric_id = units.rubric_id
),
totals AS (
  SELECT
    study, task, rubric_id, word,
    count(*) AS n,
    sum(decided) AS n_decided,
    sum(said) AS n_said,
    sum(agreed) AS n_agreed,
    sum(agreed_said) AS n_agreed_said,
    sum(audited) AS n_audited,
    sum(audit_moved) AS audit_moved,
    sum(audit_moved * audit_moved) AS n_audit_moved,
    sum(heard) AS n_heard_differed,
    sum(heard_said) AS n_heard_said,
    sum(further_heard) AS n_further_heard,
    sum(further_said) AS n_further_said
  FROM scored
  GROUP BY study, task, rubric_id, word
),
-- a pair of texts is a part of two items
clusters AS (
  SELECT
    study, task, rubric_id, word, unit_id,
    CASE WHEN is_of_unit THEN '' WHEN side = 1 THEN item_lo ELSE item_hi END AS item,
    count(*) AS n_here,
    sum(decided) AS decided_here,
    sum(said) AS said_here,
    sum(agreed) AS agreed_here,
    sum(agreed_said) AS agreed_said_here,
    sum(audited) AS audited_here,
    sum(audit_moved) AS moved_here,
    sum(heard) AS heard_here,
    sum(heard_said) AS heard_said_here
  FROM scored
  CROSS JOIN (VALUES (1), (2)) AS sides (side)
  WHERE side = 1 OR (task = 'pair' AND NOT is_of_unit)
  GROUP BY
    study, task, rubric_id, word, unit_id,
    CASE WHEN is_of_unit THEN '' WHEN side = 1 THEN item_lo ELSE item_hi END
),
-- both rates as they are, and while a cluster is left out
left_out AS (
  SELECT
    totals.study, totals.task, totals.rubric_id, totals.word, n_here, decided_here, audited_here,
    (n_said - said_here) / nullif(n_decided - decided_here, 0) AS share,
    (n_agreed_said - agreed_said_here
      + CASE WHEN n_agreed > agreed_here
             THEN (n_agreed - agreed_here) * (audit_moved - moved_here) / nullif(n_audited - audited_here, 0)
             ELSE 0 END
      + CASE WHEN n - n_agreed > n_here - agreed_here
             THEN (n - n_agreed - n_here + agreed_here) * (n_heard_said - heard_said_here)
               / nullif(n_heard_differed - heard_here, 0)
             ELSE 0 END
    ) / nullif(n - n_here, 0) AS further_share
  FROM clusters
  JOIN totals
    ON totals.study = clusters.study
    AND totals.task = clusters.task
    AND totals.rubric_id = clusters.rubric_id
    AND totals.word = clusters.word
),
whole AS (
  SELECT
    *,
    n_said / nullif(n_decided, 0) AS p,
    (n_agreed_said + CASE WHEN n_agreed < n THEN (n - n_agreed) * n_heard_said / nullif(n_heard_differed, 0) ELSE 0 END) / n
      AS p_standing,
    CASE WHEN n_agreed > 0 THEN n_agreed * audit_moved / nullif(n_audited, 0) ELSE 0 END / n AS correction,
    (n_audit_moved + 0.5::DOUBLE) / (n_audited + 1) AS q_moved,
    -- of so many draws is a share of n whose agreed part rests on the audits, and its other part on what was heard
    n::DOUBLE * n / (CASE WHEN n_agreed > 0 THEN n_agreed * n_agreed / nullif(n_audited, 0) ELSE 0 END
      + CASE WHEN n_agreed < n THEN (n - n_agreed) * (n - n_agreed) / nullif(n_heard_differed, 0) ELSE 0 END) AS n_draws
  FROM totals
),
summed AS (
  SELECT
    whole.study, whole.task, whole.rubric_id, whole.word,
    count(*) FILTER (WHERE decided_here > 0) AS g,
    count(*) FILTER (WHERE audited_here > 0) AS g_audited,
    sum(n_here) / max(whole.n) AS n_sides,
    (count(*) FILTER (WHERE decided_here > 0) - 1) / count(*) FILTER (WHERE decided_here > 0)
      * sum((left_out.share - p) * (left_out.share - p)) AS jack,
    CASE WHEN count(left_out.further_share) = count(*) THEN
      (count(*) - 1) / count(*) * sum((left_out.further_share - p_standing - correction)
        * (left_out.further_share - p_standing - correction)) END AS further_jack
  FROM whole
  JOIN left_out
    ON left_out.study = whole.study
    AND left_out.task = whole.task
    AND left_out.rubric_id = whole.rubric_id
    AND left_out.word = whole.word
  GROUP BY whole.study, whole.task, whole.rubric_id, whole.word
),
erring AS (
  SELECT
    whole.*, g, n_sides,
    CASE WHEN n_agreed > 0 THEN g_audited ELSE g END AS further_g,
    sqrt(clustered_variance(jack, p * (1 - p) / nullif(n_decided, 0), n_sides)) AS se,
    least(1.0::DOUBLE, greatest(0.0::DOUBLE, p_standing + correction)) AS further_p,
    sqrt(clustered_variance(
      further_jack,
      p_standing * (1 - p_standing) / n + CASE WHEN n_agreed > 0
        THEN n_agreed * n_agreed * q_moved * (1 - q_moved) / n / n / nullif(n_audited, 0) ELSE 0 END,
      n_sides
    )) AS further_se
  FROM whole
  JOIN summed
    ON summed.study = whole.study
    AND summed.task = whole.task
    AND summed.rubric_id = whole.rubric_id
    AND summed.word = whole.word
),
sized AS (
  SELECT *, CASE WHEN further_p > 0 AND further_p < 1 THEN CAST(n AS DOUBLE) ELSE n_draws END AS further_size
  FROM erring
),
bounded AS (
  SELECT
    *,
    wilson_clustered(p, n_decided, se, g) AS ends,
    wilson_clustered(further_p, further_size, further_se, further_g) AS further_ends
  FROM sized
)
SELECT
  study, task, rubric_id, word,
  CAST(n_decided AS BIGINT) AS n_decided,
  CAST(n_said AS BIGINT) AS n_said,
  p AS share,
  se AS share_se,
  ends.lo AS share_lo,
  ends.hi AS share_hi,
  n_said / n AS share_min,
  (n_said + n - n_decided) / n AS share_max,
  CAST(n_further_heard AS BIGINT) AS n_heard,
  CAST(n_heard_differed AS BIGINT) AS n_heard_differed,
  CAST(n_audited AS BIGINT) AS n_heard_agreed,
  CAST(n_further_said AS BIGINT) AS n_further_said,
  n_further_said / nullif(n_further_heard, 0) AS heard_share,
  CASE WHEN further_se IS NOT NULL THEN further_p END AS further_share,
  further_se AS further_share_se,
  further_ends.lo AS further_share_lo,
  further_ends.hi AS further_share_hi
FROM bounded;
