-- grain: study, task, template_id, judge_a, judge_b
-- question: How far do two judges agree, or a judge with people and with the majority of the other judges, beyond
--   chance?
-- source: agreement_pairs, over all rubrics, of prompts by field (task `prompts: FIELD`). A unit is an item, or a pair
--   of items in one order, of two people in whichever. Where a judge's repeats differ, or people are split, each of the
--   words has its part of the vote: a unit counts as if one word of either were drawn, so that repeats move no figure
--   and hard units stay. n_clusters items (prompts, where models' outputs are judged) have a unit.
-- estimators:
--   - agreement: n_equal / n_units, n_equal being the units on which both say the same one word; of the n_divided units
--     on which either has several words, how much of these is the same counts too; Wilson with the effective size where
--     a pair of items gives two units, one per order
--   - agreement_min, agreement_max: what the n_units_open units leave possible on which both were asked and an answer,
--     one of several repeats too, is unread or missing: none of them equal, or all
--   - kappa: Cohen's, with the large-sample error clustered by pair of items, and a normal interval, cut where
--     kappa ends: at -1 and 1
--   - agreement_lo_in_general, agreement_hi_in_general, kappa_se_in_general, kappa_lo_in_general, kappa_hi_in_general:
--     for items in general (clustered_variance), each item left out in turn by what it moves, and nothing taken off for
--     an item's two sides: intervals would then cover as little as .91. Of lists each list is left out too, and it is
--     taken off. As wilson_clustered and, for kappa, by t over n_clusters - 1. Those above are of these items
--   - alpha_nominal, alpha_ordinal, alpha_interval: Krippendorff's, taking votes as names, as ranks, as numbers
--     (vote_scale; n_units_scaled units have two), a judge's words by expected coincidences
--   - ac1: Gwet's, its categories those in use in the study, task and template, by models for two of them
-- reference: Cohen 1960 (kappa), with the error of Fleiss, Cohen and Everitt 1969; Krippendorff (alpha); Gwet 2008
--   (AC1); clustered, wilson_clustered.
-- nulls: all but agreement are NULL where every vote is the same: chance explains all, or nothing. Pairs that lists
--   imply are no draws, so what is of these items is NULL, and a list is left out as an item is. What is of items in
--   general is NULL below 5 of them, and what is open beside the majority of the other judges, which may change too.
-- note: judge b may be a reference: provider `human`, model `majority` is what people hold (`truths`), and agreement
--   with it a judge's accuracy; provider `panel` is the majority of the other models. With people all is of what they
--   labelled, each label alike: of items in general only where that is a random part, drawn with equal chances. The
--   accuracy of juries, and of their best judge, by labels with weights is in metric_jury.

CREATE OR REPLACE VIEW metric_agreement AS
WITH numbered AS MATERIALIZED (
  SELECT
    *,
    dense_rank() OVER (ORDER BY study, task, template_id, judge_a(agreement_pairs), judge_b(agreement_pairs))
      AS pair_no,
    row_number() OVER (ORDER BY study, task, template_id, judge_a(agreement_pairs), judge_b(agreement_pairs),
      vote_a_1, vote_b_1, vote_a_2, vote_b_2, is_open_1, is_open_2) AS tuple_no
  FROM agreement_pairs
),
counted AS (
  SELECT * FROM numbered WHERE vote_a_1 IS NOT NULL OR vote_a_2 IS NOT NULL
),
opened AS (
  SELECT
    pair_no,
    sum(n_subjects * CASE WHEN is_open_1 AND is_open_2 THEN 2 WHEN is_open_1 OR is_open_2 THEN 1 ELSE 0 END) AS n_open,
    sum(n_subjects * (CASE WHEN vote_a_1 IS NOT NULL OR is_open_1 THEN 1 ELSE 0 END
      + CASE WHEN vote_a_2 IS NOT NULL OR is_open_2 THEN 1 ELSE 0 END)) AS n_units_in_all
  FROM numbered
  WHERE is_open_1 IS NOT NULL
  GROUP BY pair_no
),
spoken AS (
  SELECT
    pair_no, tuple_no, task, n_subjects, is_open_1 AS is_open,
    string_split(vote_a_1, chr(30)) AS words_a, string_split(vote_b_1, chr(30)) AS words_b
  FROM counted
  WHERE vote_a_1 IS NOT NULL
  UNION ALL
  SELECT
    pair_no, tuple_no, task, n_subjects, is_open_2,
    string_split(vote_a_2, chr(30)), string_split(vote_b_2, chr(30))
  FROM counted
  WHERE vote_a_2 IS NOT NULL
),
-- each word of one with each of the other, for its part of the unit
worded AS (
  SELECT
    *, 1.0::DOUBLE / (array_length(words_a) * array_length(words_b)) AS part, unnest(words_a) AS a
  FROM spoken
),
votes AS MATERIALIZED (
  SELECT pair_no, tuple_no, task, n_subjects, is_open, part, n_subjects * part AS n, a, unnest(words_b) AS b
  FROM worded
),
sides AS (
  SELECT pair_no, task, a AS vote, n AS n_a, 0.0 AS n_b, CASE WHEN vote_scale(task, b) IS NOT NULL THEN n END AS n_scaled
  FROM votes
  UNION ALL
  SELECT pair_no, task, b AS vote, 0.0 AS n_a, n AS n_b, CASE WHEN vote_scale(task, a) IS NOT NULL THEN n END AS n_scaled
  FROM votes
),
categories AS (
  SELECT
    pair_no, vote,
    round(sum(n_a), 9) AS n_a,
    round(sum(n_b), 9) AS n_b,
    max(vote_scale(task, vote)) AS x,
    CASE WHEN max(vote_scale(task, vote)) IS NOT NULL THEN round(sum(n_scaled), 9) END AS n_scaled
  FROM sides
  GROUP BY pair_no, vote
),
-- the middle rank of a category; votes that are equal as numbers share it
ranked AS (
  SELECT
    *,
    sum(n_scaled) OVER (PARTITION BY pair_no ORDER BY x NULLS LAST)
      - sum(n_scaled) OVER (PARTITION BY pair_no, x) / 2 AS r
  FROM categories
),
sizes AS (
  SELECT
    pair_no,
    sum(n_a) AS n,
    sum(n_a * n_b) AS chance_products,
    sum(power(n_a + n_b, 2)) AS squares,
    sum((n_a + n_b) * (2 * n - n_a - n_b)) AS spread,
    sum(n_scaled) AS n_scaled,
    sum(n_scaled) * sum(n_scaled * x * x) - power(sum(n_scaled * x), 2) AS spread_x,
    sum(n_scaled) * sum(n_scaled * r * r) - power(sum(n_scaled * r), 2) AS spread_r
  FROM (SELECT *, sum(n_a) OVER (PARTITION BY pair_no) AS n FROM ranked)
  GROUP BY pair_no
),
agreed AS (
  SELECT
    votes.pair_no,
    round(sum(CASE WHEN a = b THEN votes.n ELSE 0.0 END), 9) AS equals,
    round(sum(CASE WHEN a = b AND NOT is_open THEN votes.n ELSE 0.0 END), 9) AS equals_for_good,
    sum(CASE WHEN a = b AND part = 1 THEN n_subjects ELSE 0 END) AS n_equal,
    round(sum(CASE WHEN part < 1 THEN votes.n ELSE 0.0 END)) AS n_divided,
    sum(votes.n * power(of_a.x - of_b.x, 2)) AS squares_x,
    sum(CASE WHEN of_a.x IS NOT NULL AND of_b.x IS NOT NULL THEN votes.n * power(of_a.r - of_b.r, 2) END) AS squares_r
  FROM votes
  JOIN ranked AS of_a ON of_a.pair_no = votes.pair_no AND of_a.vote = votes.a
  JOIN ranked AS of_b ON of_b.pair_no = votes.pair_no AND of_b.vote = votes.b
  GROUP BY votes.pair_no
),
figures AS MATERIALIZED (
  SELECT
    sizes.*, n_equal, n_divided, equals, equals_for_good, squares_x, squares_r,
    equals / sizes.n AS po,
    chance_products / (sizes.n * sizes.n) AS pe
  FROM sizes
  JOIN agreed ON agreed.pair_no = sizes.pair_no
),
-- what each tuple of votes moves: agreement less its mean, and kappa by the delta method
moves AS MATERIALIZED (
  SELECT
    votes.pair_no, votes.tuple_no, max(n_subjects) AS n_subjects,
    sum(part * ((CASE WHEN a = b THEN 1.0 ELSE 0.0 END) - po)) AS agreement_move,
    sum(part * (((CASE WHEN a = b THEN 1.0 ELSE 0.0 END) - po) / (1 - pe)
        - (1 - po) / power(1 - pe, 2) * (of_a.n_b / figures.n + of_b.n_a / figures.n - 2 * pe))) AS kappa_move
  FROM votes
  JOIN figures ON figures.pair_no = votes.pair_no AND figures.pe < 1
  JOIN ranked AS of_a ON of_a.pair_no = votes.pair_no AND of_a.vote = votes.a
  JOIN ranked AS of_b ON of_b.pair_no = votes.pair_no AND of_b.vote = votes.b
  GROUP BY votes.pair_no, votes.tuple_no
),
errors AS (
  SELECT
    pair_no,
    sqrt(sum(n_subjects * power(agreement_move, 2))) AS agreement_error,
    sqrt(sum(n_subjects * power(kappa_move, 2))) AS kappa_error
  FROM moves
  GROUP BY pair_no
),
-- what each item, or prompt, moves: it is a part of several tuples of votes, and as often as its count says
drawn AS (
  SELECT pair_no, tuple_no, CASE WHEN vote_a_1 IS NULL OR vote_a_2 IS NULL THEN 1 ELSE 2 END AS n_places,
    unnest(flatten(clusters)) AS part
  FROM counted
),
cluster_moves AS (
  SELECT
    drawn.pair_no,
    bool_or(part.is_item) AS is_item,
    sum(part.value * n_places) AS n_here,
    sum(part.value * agreement_move) AS agreement_move,
    sum(part.value * kappa_move) AS kappa_move
  FROM drawn
  LEFT JOIN moves ON moves.pair_no = drawn.pair_no AND moves.tuple_no = drawn.tuple_no
  GROUP BY drawn.pair_no, part.key
),
jackknives AS (
  SELECT
    cluster_moves.pair_no,
    count(*) FILTER (WHERE is_item) AS n_clusters,
    sum(n_here) / max(n) AS n_sides,
    (count(*) - 1) / count(*) * sum(power(agreement_move / nullif(n - n_here, 0), 2)) AS agreement_jack,
    (count(*) - 1) / count(*) * sum(power(kappa_move / nullif(n - n_here, 0), 2)) AS kappa_jack
  FROM cluster_moves
  JOIN figures ON figures.pair_no = cluster_moves.pair_no
  GROUP BY cluster_moves.pair_no
),
places AS (
  SELECT
    pair_no, study, task, template_id, judge_a(counted) AS judge_a, judge_b(counted) AS judge_b,
    bool_or(is_listed) AS is_listed,
    CAST(sum(n_subjects) AS BIGINT) AS n_subjects
  FROM counted
  GROUP BY pair_no, study, task, template_id, judge_a, judge_b
),
-- of models alone, or of those that people are among, so that labels move nothing between models
in_use AS (
  SELECT
    places.study, places.task, places.template_id, 'human' IN (judge_a.provider_a, judge_b.provider_b) AS has_people,
    count(DISTINCT vote) AS n_categories
  FROM categories
  JOIN places ON places.pair_no = categories.pair_no
  GROUP BY places.study, places.task, places.template_id, 'human' IN (judge_a.provider_a, judge_b.provider_b)
),
measured AS (
  SELECT
    places.*, in_use.n_categories, n, n_equal, n_divided, po, pe, n_scaled / 2 AS n_scaled_units,
    n_open, equals_for_good, n_units_in_all,
    CASE WHEN is_listed THEN NULL WHEN agreement_error > 0 THEN effective_size(po, n, agreement_error / n)
         ELSE n_subjects END AS n_effective,
    (po - pe) / (1 - pe) AS kappa,
    kappa_error / n AS kappa_se,
    n_clusters,
    sqrt(clustered_variance(agreement_jack, power(agreement_error / n, 2), CASE WHEN is_listed THEN n_sides ELSE 1 END))
      AS agreement_general_se,
    CASE WHEN n_clusters >= 5
         THEN sqrt(clustered_variance(kappa_jack, power(kappa_error / n, 2), CASE WHEN is_listed THEN n_sides ELSE 1 END)) END
      AS kappa_general_se,
    CASE WHEN n_clusters >= 5 THEN t_two_sided_95(n_clusters - 1) END AS t,
    CASE WHEN spread > 0 THEN 1 - (2 * n - 1) * 2 * (n - equals) / spread END AS alpha_nominal,
    CASE WHEN spread_r > 0 THEN 1 - (n_scaled - 1) * squares_r / spread_r END AS alpha_ordinal,
    CASE WHEN spread_x > 0 THEN 1 - (n_scaled - 1) * squares_x / spread_x END AS alpha_interval,
    CASE WHEN spread > 0 THEN spread / (4 * n * n) / (n_categories - 1) END AS chance_ac1
  FROM places
  JOIN figures ON figures.pair_no = places.pair_no
  JOIN jackknives ON jackknives.pair_no = places.pair_no
  LEFT JOIN errors ON errors.pair_no = places.pair_no
  LEFT JOIN opened ON opened.pair_no = places.pair_no
  JOIN in_use
    ON in_use.study = places.study
    AND in_use.task = places.task
    AND in_use.template_id = places.template_id
    AND in_use.has_people = ('human' IN (places.judge_a.provider_a, places.judge_b.provider_b))
),
sized AS (
  SELECT
    *,
    CASE WHEN t IS NULL THEN NULL
         WHEN agreement_general_se > 1e-9 THEN effective_size(po, n, agreement_general_se) ELSE n_subjects END AS n_general
  FROM measured
)
SELECT
  study, task, template_id, judge_a.*, judge_b.*,
  n_subjects,
  CAST(n AS BIGINT) AS n_units,
  CAST(n_equal AS BIGINT) AS n_equal,
  CAST(n_divided AS BIGINT) AS n_divided,
  CAST(n_open AS BIGINT) AS n_units_open,
  po AS agreement,
  equals_for_good / n_units_in_all AS agreement_min,
  (equals_for_good + n_open) / n_units_in_all AS agreement_max,
  wilson_lo(po * n_effective, n_effective) AS agreement_lo,
  wilson_hi(po * n_effective, n_effective) AS agreement_hi,
  wilson_lo(po * n_general, n_general, t) AS agreement_lo_in_general,
  wilson_hi(po * n_general, n_general, t) AS agreement_hi_in_general,
  CASE WHEN pe < 1 THEN kappa END AS kappa,
  CASE WHEN pe < 1 AND NOT is_listed THEN kappa_se END AS kappa_se,
  CASE WHEN kappa_se > 1e-9 AND NOT is_listed THEN greatest(-1.0, kappa - 1.959963984540054 * kappa_se) END AS kappa_lo,
  CASE WHEN kappa_se > 1e-9 AND NOT is_listed THEN least(1.0, kappa + 1.959963984540054 * kappa_se) END AS kappa_hi,
  CASE WHEN pe < 1 THEN kappa_general_se END AS kappa_se_in_general,
  CASE WHEN kappa_general_se > 1e-9 THEN greatest(-1.0, kappa - t * kappa_general_se) END AS kappa_lo_in_general,
  CASE WHEN kappa_general_se > 1e-9 THEN least(1.0, kappa + t * kappa_general_se) END AS kappa_hi_in_general,
  n_clusters,
  (po - chance_ac1) / (1 - chance_ac1) AS ac1,
  alpha_nominal,
  alpha_ordinal,
  alpha_interval,
  CAST(coalesce(n_scaled_units, 0) AS BIGINT) AS n_units_scaled
FROM sized;
