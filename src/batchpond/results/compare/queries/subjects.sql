-- What each cell of a side holds of each item, or pair of items: the majority in each order, and numbers for it. These
-- are of all votes of repeats, so that asking more often moves none: each word has its part, and of a pair each vote of
-- one order meets each of the other. parts is what is said, as words with their parts.
CREATE OR REPLACE TEMP TABLE compare_subjects AS
WITH votes AS (
  SELECT
    side, task, template_id, rubric_id, provider, request_model, thinking, candidate,
    statement, unit_id, item_lo, item_hi, turn_no, is_lo_first, vote,
    bool_or(is_of_unit) AS is_of_unit,
    count(*) AS n,
    count(outcome) AS n_answered,
    count(*) FILTER (WHERE outcome IN ('error', 'expired', 'cancelled', 'missing')) AS n_error,
    count(*) FILTER (WHERE outcome IN ('unparsed', 'ambiguous', 'truncated', 'empty')) AS n_unparsed,
    count(*) FILTER (WHERE outcome IN ('refused', 'blocked')) AS n_refused,
    sum(score) AS score_sum,
    count(score) AS n_scores,
    sum(cost_usd) AS cost_usd,
    sum(cost_usd) FILTER (WHERE origin = 'simulated') AS simulated_usd,
    count(cost_usd) AS n_priced
  FROM compare_said
  GROUP BY ALL
),
orders AS (
  SELECT
    * EXCLUDE (vote, n, is_of_unit, n_answered, n_error, n_unparsed, n_refused, score_sum, n_scores, cost_usd,
      simulated_usd, n_priced),
    max_by(vote, n) FILTER (WHERE vote IS NOT NULL) AS top,
    max(n, 2) FILTER (WHERE vote IS NOT NULL) AS most,
    list({'key': vote, 'value': n} ORDER BY vote) FILTER (WHERE vote IS NOT NULL) AS words,
    sum(n) FILTER (WHERE vote IS NOT NULL) AS n_votes,
    bool_or(is_of_unit) AS is_of_unit,
    sum(n) AS n,
    sum(n_answered) AS n_answered,
    sum(n_error) AS n_error,
    sum(n_unparsed) AS n_unparsed,
    sum(n_refused) AS n_refused,
    sum(score_sum) AS score_sum,
    sum(n_scores) AS n_scores,
    sum(cost_usd) AS cost_usd,
    sum(simulated_usd) AS simulated_usd,
    sum(n_priced) AS n_priced
  FROM votes
  GROUP BY ALL
),
majorities AS (
  SELECT
    * EXCLUDE (words),
    CASE WHEN len(most) = 1 OR most[1] > most[2] THEN top END AS majority,
    map_from_entries(list_transform(words, LAMBDA word: {'key': word.key, 'value': word.value / n_votes})) AS words
  FROM orders
),
subjects AS (
  SELECT
    side, task, template_id, rubric_id, provider, request_model, thinking, candidate,
    statement, unit_id, item_lo, item_hi, turn_no,
    bool_or(is_of_unit) AS is_of_unit,
    max(majority) FILTER (WHERE is_lo_first) AS lo_first,
    max(majority) FILTER (WHERE NOT is_lo_first) AS hi_first,
    any_value(words) FILTER (WHERE is_lo_first) AS lo_words,
    any_value(words) FILTER (WHERE NOT is_lo_first) AS hi_words,
    CAST(sum(n) AS BIGINT) AS n_calls,
    CAST(sum(n_answered) AS BIGINT) AS n_answered,
    CAST(sum(n_priced) AS BIGINT) AS n_priced,
    sum(n_error) / nullif(sum(n_answered), 0) AS error,
    sum(n_unparsed) / nullif(sum(n_answered) - sum(n_error), 0) AS unparsed,
    sum(n_refused) / nullif(sum(n_answered) - sum(n_error), 0) AS refused,
    -- of a pair it is of a place
    sum(score_sum) FILTER (WHERE task <> 'pair') / nullif(sum(n_scores), 0) AS score,
    sum(cost_usd) AS cost_usd,
    sum(simulated_usd) AS simulated_usd
  FROM majorities
  GROUP BY ALL
),
crossed AS (
  SELECT
    *,
    CASE WHEN lo_words IS NOT NULL AND hi_words IS NOT NULL
         THEN list_transform(map_keys(lo_words), LAMBDA word:
           {'key': word, 'value': lo_words[word] * coalesce(hi_words[word], 0)}) END AS same
  FROM subjects
),
held AS (
  SELECT
    task, coalesce(rubric_id, '') AS rubric_id, coalesce(unit_id, '') AS unit_id, item_lo,
    coalesce(item_hi, '') AS item_hi, coalesce(turn_no, 0) AS turn_no,
    CASE WHEN min(truth) = max(truth) THEN min(truth) END AS truth,
    CASE WHEN min(truth_words) = max(truth_words) THEN min(truth_words) END AS truth_words
  FROM truths
  WHERE study IN (SELECT study FROM compare_said)
  GROUP BY ALL
)
SELECT
  subjects.* EXCLUDE (lo_words, hi_words, same),
  held.truth,
  CASE WHEN lo_first = hi_first OR hi_first IS NULL THEN coalesce(lo_first, CAST(score AS VARCHAR))
       WHEN lo_first IS NULL THEN hi_first
       ELSE 'by order' END AS said,
  CASE WHEN same IS NOT NULL
       THEN map_from_entries(list_append(same, {'key': 'by order', 'value': 1 - list_sum(list_transform(same, LAMBDA word: word.value))}))
       ELSE coalesce(lo_words, hi_words, CASE WHEN score IS NOT NULL THEN map([CAST(score AS VARCHAR)], [1.0::DOUBLE]) END) END
    AS parts,
  CASE WHEN subjects.task = 'pair' THEN round(list_sum(list_transform(same, LAMBDA word: word.value)), 12) END AS consistency,
  CASE WHEN subjects.task = 'pair' AND same IS NOT NULL THEN
    (coalesce(lo_words['lo'], 0) + coalesce(lo_words['tie'], 0) / 2
      + coalesce(hi_words['hi'], 0) + coalesce(hi_words['tie'], 0) / 2) / 2 END AS first_rate,
  CASE WHEN subjects.task = 'compliance' AND lo_words IS NOT NULL THEN coalesce(lo_words['true'], 0) END AS compliance,
  list_avg([
    list_sum(list_transform(map_entries(lo_words), LAMBDA word: word.value * truth_part(word.key, held.truth_words))),
    list_sum(list_transform(map_entries(hi_words), LAMBDA word: word.value * truth_part(word.key, held.truth_words)))
  ]) AS accuracy
FROM crossed AS subjects
LEFT JOIN held
  ON held.task = subjects.task
  AND held.rubric_id = CASE WHEN subjects.task = 'compliance' THEN subjects.statement ELSE subjects.rubric_id END
  AND held.unit_id = subjects.unit_id
  AND held.item_lo = subjects.item_lo
  AND held.item_hi = subjects.item_hi
  AND held.turn_no = subjects.turn_no
