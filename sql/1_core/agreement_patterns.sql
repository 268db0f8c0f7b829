-- grain: pattern_no
-- question: Which sets of votes did items, or pairs, get from their judges, and how many got each?
-- source: agreement_votes. ballots lists, in binary order, the votes on one item or pair: kind, judge (judge_text of cell),
--   vote_1, vote_2, and `1` for each of them that is open, apart by the character 31; kind is `model`,
--   `list` or `best` (a model, of a pair that its list implies, or the best of its list), `person` (a judge of provider human) or `truth` (what people hold together). n_subjects items or pairs of the
--   study, task and template have the very list, over all rubrics. Fields of an answer, which are the rubrics of
--   prompts, have words of their own, and what is chance for one is none for another: task is `prompts: ` and the field. Judges mostly agree, so there are few patterns, and
--   everything about agreement is made of them.
--   clusters says what they are drawn with, for whatever speaks of items in general, as in pair_clusters: the hash of
--   an item (of either item of a pair; of the prompt, where they are known to be models' outputs), and of how many of
--   the n_subjects it is a part. Of a pair that lists imply they are either item, over all lists, and its list, whose
--   pairs share an answer and which is no item (is_item).

CREATE OR REPLACE VIEW agreement_patterns AS
WITH ballots AS (
  SELECT
    study, CASE WHEN task = 'prompts' THEN concat_ws(': ', task, nullif(rubric_id, '')) ELSE task END AS task, template_id,
    list_sort(list(
      CASE WHEN list_kind = 'best' THEN 'best' WHEN list_kind IS NOT NULL THEN 'list' WHEN provider <> 'human' THEN 'model' WHEN request_model = 'majority' THEN 'truth'
           ELSE 'person' END
      || chr(31) || judge_text(agreement_votes)
      || chr(31) || coalesce(vote_1, '') || chr(31) || coalesce(vote_2, '')
      || chr(31) || CASE WHEN is_open_1 THEN '1' ELSE '' END || chr(31) || CASE WHEN is_open_2 THEN '1' ELSE '' END
    )) AS ballots,
    CASE WHEN bool_or(is_of_unit) THEN hash(unit_id) WHEN count(list_kind) > 0 THEN hash('', item_lo)
         ELSE hash(unit_id, item_lo) END AS cluster_lo,
    CASE WHEN bool_or(is_of_unit) OR item_hi IS NULL THEN NULL WHEN count(list_kind) > 0 THEN hash('', item_hi)
         ELSE hash(unit_id, item_hi) END AS cluster_hi,
    CASE WHEN count(list_kind) > 0 AND NOT bool_or(is_of_unit) THEN hash(unit_id) END AS cluster_list
  FROM agreement_votes
  GROUP BY study, task, template_id, rubric_id, unit_id, item_lo, item_hi, turn_no
),
sided AS (
  SELECT
    study, task, template_id, ballots, sides.side,
    CASE sides.side WHEN 1 THEN cluster_lo WHEN 2 THEN cluster_hi ELSE cluster_list END AS cluster
  FROM ballots
  CROSS JOIN (VALUES (1), (2), (3)) AS sides (side)
  WHERE sides.side = 1 OR CASE sides.side WHEN 2 THEN cluster_hi ELSE cluster_list END IS NOT NULL
),
counted AS (
  SELECT study, task, template_id, ballots, side, cluster, count(*) AS n
  FROM sided
  GROUP BY study, task, template_id, ballots, side, cluster
)
SELECT
  row_number() OVER (ORDER BY study, task, template_id, ballots) AS pattern_no,
  study, task, template_id, ballots,
  CAST(sum(CASE WHEN side = 1 THEN n END) AS BIGINT) AS n_subjects,
  list_sort(list({'key': cluster, 'value': n, 'is_item': side < 3})) AS clusters
FROM counted
GROUP BY study, task, template_id, ballots;
