-- grain: study, task, rubric_id
-- question: Is the verdict of several judges together better than that of the best of them, and what does it cost?
-- source: jury_verdicts and judge_costs. n_units have at least two judges that were asked (n_judges in all); on n_heard
--   of them at least two spoke. n_labelled units have a label of people: n_majority_labelled, n_weighted_labelled and
--   n_best_judge_labelled of these a verdict of each, n_shared_labelled of all three. Where people are split a verdict is
--   right in part (truth_part). The best judge (best_template_id and so on) is the one that is
--   right on most of the n_labelled units by weight, of equals the one wrong least often, then the first by name. It is
--   chosen by the labels that it is measured by, which flatters it, not the jury. What labels say, each by its weight in
--   `truths`, is of the labelled: of all units only where these are a random part, or of each stratum that `label` drew
--   from, as units are not that people took for what judges made of them: n_heard_labelled of the n_heard units are labelled, n_unanimous_labelled of the n_unanimous.
--   A judge has one word on a unit, however often it was asked: most of its repeats (of a pair in either order), and none
--   where they are drawn. So all of it is of a jury whose judges are asked as often as these were: asking more often is
--   another jury, more often unanimous and right, as one with more judges is. How far single answers agree and are right,
--   however many there are, is in metric_agreement_overall and metric_agreement.
-- estimators:
--   - unanimous_share: n_unanimous / n_heard, where all that spoke said the same
--   - majority_share: n_majority / n_heard, where more than half of those that spoke said the same; 1 whenever an odd
--     number of judges all say one of two words, which its interval then always holds
--   - p_labels_alike: that the labelled are drawn by lot from the n_heard units, of which n_unanimous are unanimous:
--     hypergeometric, normal with Yates' correction; small where labels lean to what judges differ on, or agree on. Below
--     0.01 no more often than it should be where five units of each kind are expected, up to twice as often where fewer are
--   - majority_accuracy, weighted_accuracy, best_judge_accuracy: of the labelled units with a verdict of the majority,
--     of the weighted jury and of the best judge, the share that people call right: of other units each, as who is
--     silent on the hard ones is right more often
--   - majority_accuracy_shared, weighted_accuracy_shared, best_judge_accuracy_shared: the same of the n_shared_labelled
--     units, which are to be compared
--   - majority_accuracy_min, majority_accuracy_max, weighted_accuracy_min, weighted_accuracy_max,
--     best_judge_accuracy_min, best_judge_accuracy_max: what the labelled units without a verdict leave open, over
--     n_labelled for all three, the same units: all of them wrong, or all right
--   - unanimous_share_se, majority_share_se, majority_accuracy_se, best_judge_accuracy_se: for items in general
--     (clustered_variance, each item or prompt left out in turn), and the ends _lo and _hi with them, as wilson_clustered
--   - weighted_accuracy_se: the same, but of 19 halves (v_half): labelled items or prompts are in 19 parts, drawn by md5,
--     each half leaves out 9 of them, any two parts together in 4 halves, and the weights are made anew from the rest; of
--     a half without n_out of g, the squared distance from the mean of all halves counts (g - n_out) / n_out. A vote that
--     is nearly even turns with each label: an error for weights that stand does not see it (it covers .86 of .95 on
--     planted juries), and leaving out a few labels at a time sees it several times over, as a vote is no smooth function
--     of its weights. Halves cover .94 to .98. Of few labels or hard items they are conservative, up to .99, with an
--     error a quarter too large: a vote by half the labels is less steady than one by all
--   - cost_usd: of all judges' calls for the n_units, a lower bound where n_cost_unknown > 0; a call that answers for
--     several fields counts whole for each. What a list cost is of no pair of it, so each is one unknown by each judge
--   - cost_per_verdict_usd: per majority, of all judges together: cost_usd / n_majority
--   - best_judge_cost_per_verdict_usd, cheapest_judge_cost_per_verdict_usd: a single judge's cost on these units, per
--     unit on which it spoke; the cheapest judge (cheapest_template_id and so on) has the least
-- reference: Condorcet 1785 (majority), Nitzan and Paroush 1982 (weights), Shao and Wu 1989 (leaving out many where a
--   number is not smooth), Plackett and Burman 1946 and McCarthy 1969 (balanced halves); clustered, wilson_clustered.
-- nulls: an accuracy is NULL without a label, ends below 5 items or prompts; a price where a cost that counts for it is
--   unknown or there is no verdict.

CREATE OR REPLACE VIEW metric_jury AS
WITH juries AS MATERIALIZED (
  SELECT * FROM jury_verdicts
),
listed AS (
  SELECT study, task, rubric_id, unit_id, item_lo, item_hi, turn_no, truth_words,
    coalesce(label_weight, 1.0::DOUBLE) AS w, unnest(judges) AS judge
  FROM juries
),
said AS (
  SELECT
    study, task, rubric_id, unit_id, item_lo, item_hi, turn_no, truth_words, w,
    judge.template_id AS template_id, judge(judge) AS judge, judge.word AS word
  FROM listed
),
judged AS (
  SELECT
    said.study, said.task, said.rubric_id, said.template_id, said.judge,
    count(word) AS n_words,
    count(truth_words) AS n_labelled,
    round(sum(w * truth_part(word, truth_words)), 9) AS n_right,
    round(sum(CASE WHEN truth_part(word, truth_words) IS NOT NULL THEN w END), 9) AS n_judged,
    sum(cost_usd) AS cost_usd,
    CAST(sum(coalesce(n_cost_unknown, 1)) AS BIGINT) AS n_cost_unknown
  FROM said
  LEFT JOIN judge_costs AS spent
    ON spent.study = said.study
    AND spent.task = said.task
    AND spent.template_id = said.template_id
    AND spent.rubric_id = said.rubric_id
    AND judge(spent) = said.judge
    AND spent.unit_id = said.unit_id
    AND spent.item_lo = said.item_lo
    AND coalesce(spent.item_hi, '') = coalesce(said.item_hi, '')
    AND coalesce(spent.turn_no, -1) = coalesce(said.turn_no, -1)
  GROUP BY said.study, said.task, said.rubric_id, said.template_id, said.judge
),
priced AS (
  SELECT *, CASE WHEN n_cost_unknown = 0 THEN cost_usd / nullif(n_words, 0) END AS price
  FROM judged
),
placed AS (
  SELECT
    *,
    sum(n_labelled) OVER (PARTITION BY study, task, rubric_id) > 0 AND row_number() OVER (
      PARTITION BY study, task, rubric_id
      ORDER BY coalesce(n_right, 0) DESC, n_judged, template_id, judge
    ) = 1 AS is_best,
    price IS NOT NULL AND row_number() OVER (
      PARTITION BY study, task, rubric_id
      ORDER BY price NULLS LAST, template_id, judge
    ) = 1 AS is_cheapest
  FROM priced
),
cells AS MATERIALIZED (
  SELECT
    study, task, rubric_id,
    count(*) AS n_judges,
    sum(cost_usd) AS cost_usd,
    CAST(sum(n_cost_unknown) AS BIGINT) AS n_cost_unknown,
    max(template_id) FILTER (WHERE is_best) AS best_template_id,
    max(best_judge(judge)) FILTER (WHERE is_best) AS best_judge,
    max(price) FILTER (WHERE is_best) AS best_judge_price,
    max(template_id) FILTER (WHERE is_cheapest) AS cheapest_template_id,
    max(cheapest_judge(judge)) FILTER (WHERE is_cheapest) AS cheapest_judge,
    max(price) FILTER (WHERE is_cheapest) AS cheapest_judge_price
  FROM placed
  GROUP BY study, task, rubric_id
),
best AS (
  SELECT
    juries.*,
    list_extract(list_filter(judges, LAMBDA judge:
      judge.template_id = best_template_id AND best_judge(judge) = best_judge), 1).word AS best_word
  FROM juries
  JOIN cells
    ON cells.study = juries.study
    AND cells.task = juries.task
    AND cells.rubric_id = juries.rubric_id
),
told AS (
  SELECT
    study, task, rubric_id, unit_id, item_lo, item_hi, is_of_unit, share, n_spoke, majority,
    coalesce(label_weight, 1.0::DOUBLE) AS w,
    truth_part(majority, truth_words) AS majority_right,
    truth_part(weighted, truth_words) AS weighted_right,
    truth_part(best_word, truth_words) AS best_judge_right,
    majority IS NOT NULL AND weighted IS NOT NULL AND best_word IS NOT NULL AS is_shared
  FROM best
),
asked AS (
  SELECT
    study, task, rubric_id, unit_id, item_lo, item_hi, is_of_unit, w AS label_w,
    unnest([
      {'rate': 'unanimous_share', 'hit': CASE WHEN share = 1 THEN 1.0::DOUBLE WHEN share < 1 THEN 0.0::DOUBLE END},
      {'rate': 'majority_share', 'hit': CASE WHEN n_spoke < 2 THEN NULL WHEN majority IS NULL THEN 0.0::DOUBLE
        ELSE 1.0::DOUBLE END},
      {'rate': 'majority_accuracy', 'hit': majority_right},
      {'rate': 'weighted_accuracy', 'hit': weighted_right},
      {'rate': 'best_judge_accuracy', 'hit': best_judge_right},
      {'rate': 'majority_shared', 'hit': CASE WHEN is_shared THEN majority_right END},
      {'rate': 'weighted_shared', 'hit': CASE WHEN is_shared THEN weighted_right END},
      {'rate': 'best_judge_shared', 'hit': CASE WHEN is_shared THEN best_judge_right END}
    ]) AS asked
  FROM told
),
-- a pair of texts is a part of two items
clusters AS (
  SELECT
    study, task, rubric_id, asked.rate AS rate, unit_id,
    CASE WHEN is_of_unit THEN '' WHEN side = 1 THEN item_lo ELSE item_hi END AS item,
    count(*) FILTER (WHERE side = 1) AS n_counted,
    sum(CASE WHEN asked.rate IN ('unanimous_share', 'majority_share') THEN 1.0::DOUBLE ELSE label_w END) AS n_here,
    sum(CASE WHEN asked.rate IN ('unanimous_share', 'majority_share') THEN 1.0::DOUBLE ELSE label_w END * asked.hit)
      AS hits_here,
    coalesce(sum(CASE WHEN asked.rate IN ('unanimous_share', 'majority_share') THEN 1.0::DOUBLE ELSE label_w END)
      FILTER (WHERE side = 1), 0) AS n_once,
    coalesce(sum(CASE WHEN asked.rate IN ('unanimous_share', 'majority_share') THEN 1.0::DOUBLE ELSE label_w END * asked.hit)
      FILTER (WHERE side = 1), 0) AS hits_once,
    coalesce(sum(CASE WHEN asked.rate IN ('unanimous_share', 'majority_share') THEN 1.0::DOUBLE ELSE label_w * label_w END)
      FILTER (WHERE side = 1), 0) AS squares_once
  FROM asked
  CROSS JOIN (VALUES (1), (2)) AS sides (side)
  WHERE asked.hit IS NOT NULL AND (side = 1 OR (task = 'pair' AND NOT is_of_unit))
  GROUP BY
    study, task, rubric_id, asked.rate, unit_id,
    CASE WHEN is_of_unit THEN '' WHEN side = 1 THEN item_lo ELSE item_hi END
),
moved AS (
  SELECT
    *,
    sum(n_counted) OVER whole AS n,
    round(sum(n_once) OVER whole, 9) AS w,
    round(sum(hits_once) OVER whole, 9) AS hits,
    (sum(hits_once) OVER whole - hits_here) / nullif(sum(n_once) OVER whole - n_here, 0)
      - sum(hits_once) OVER whole / sum(n_once) OVER whole AS moved
  FROM clusters
  WINDOW whole AS (PARTITION BY study, task, rubric_id, rate)
),
summed AS (
  SELECT
    study, task, rubric_id, rate,
    CAST(max(n) AS BIGINT) AS n,
    max(w) AS w,
    max(w) * max(w) / sum(squares_once) AS n_effective,
    max(hits) AS hits,
    max(hits) / max(w) AS p,
    count(*) AS g,
    sum(n_here) / max(w) AS n_sides,
    (count(*) - 1) / count(*) * sum(moved * moved) AS jack
  FROM moved
  GROUP BY study, task, rubric_id, rate
),
-- what a weighted jury says of people's labels while a part of them is left out
labels AS MATERIALIZED (
  SELECT
    study, task, rubric_id, unit_id, item_lo, item_hi, is_of_unit, truth_words, judges,
    coalesce(label_weight, 1.0::DOUBLE) AS w,
    row_number() OVER (ORDER BY study, task, rubric_id, unit_id, item_lo, item_hi, turn_no) AS unit_no
  FROM juries
  WHERE truth_words IS NOT NULL
),
sides AS (
  SELECT
    study, task, rubric_id, unit_no, unit_id,
    CASE WHEN is_of_unit THEN '' WHEN side = 1 THEN item_lo ELSE item_hi END AS item
  FROM labels
  CROSS JOIN (VALUES (1), (2)) AS sides (side)
  WHERE side = 1 OR (task = 'pair' AND NOT is_of_unit)
),
drawn AS (
  SELECT
    study, task, rubric_id, unit_id, item,
    (row_number() OVER (
      PARTITION BY study, task, rubric_id ORDER BY md5(unit_id || '/' || item), unit_id, item
    ) - 1) % 19 AS part,
    count(*) OVER (PARTITION BY study, task, rubric_id) AS g
  FROM sides
  GROUP BY study, task, rubric_id, unit_id, item
),
-- the squares modulo 19 and their shifts: each part is left out of 9 halves, each two parts together of 4
out_of AS MATERIALIZED (
  SELECT study, task, rubric_id, unit_id, item, g, (square + 19 - part) % 19 AS half
  FROM drawn
  CROSS JOIN (VALUES (1), (4), (5), (6), (7), (9), (11), (16), (17)) AS squares (square)
),
halves AS (
  SELECT study, task, rubric_id, half, max(g) AS g, count(*) AS n_out
  FROM out_of
  GROUP BY study, task, rubric_id, half
),
left_out AS MATERIALIZED (
  SELECT DISTINCT sides.study, sides.task, sides.rubric_id, sides.unit_no, out_of.half
  FROM sides
  JOIN out_of
    ON out_of.study = sides.study
    AND out_of.task = sides.task
    AND out_of.rubric_id = sides.rubric_id
    AND out_of.unit_id = sides.unit_id
    AND out_of.item = sides.item
),
spoken AS (
  SELECT study, task, rubric_id, unit_no, truth_words, w, unnest(judges) AS judge
  FROM labels
),
heard AS MATERIALIZED (
  SELECT
    study, task, rubric_id, unit_no, truth_words, w, judge.word AS word,
    truth_part(judge.word, truth_words) AS right_part,
    dense_rank() OVER (
      PARTITION BY study, task, rubric_id
      ORDER BY judge.template_id, judge(judge)
    ) AS judge_no
  FROM spoken
  WHERE judge.word IS NOT NULL
),
known AS (
  SELECT study, task, rubric_id, judge_no, count(*) AS n, sum(right_part) AS n_right
  FROM heard
  GROUP BY study, task, rubric_id, judge_no
),
known_out AS (
  SELECT heard.study, heard.task, heard.rubric_id, judge_no, half, count(*) AS n, sum(right_part) AS n_right
  FROM heard
  JOIN left_out ON left_out.unit_no = heard.unit_no
  GROUP BY heard.study, heard.task, heard.rubric_id, judge_no, half
),
elsewhere AS (
  SELECT
    heard.study, heard.task, heard.rubric_id, heard.unit_no, heard.truth_words, heard.w, heard.word, halves.half, halves.g,
    halves.n_out,
    known.n - coalesce(known_out.n, 0) - 1 AS n_elsewhere,
    round(known.n_right - coalesce(known_out.n_right, 0) - heard.right_part, 9) AS right_elsewhere
  FROM heard
  JOIN halves
    ON halves.study = heard.study
    AND halves.task = heard.task
    AND halves.rubric_id = heard.rubric_id
  JOIN known
    ON known.study = heard.study
    AND known.task = heard.task
    AND known.rubric_id = heard.rubric_id
    AND known.judge_no = heard.judge_no
  LEFT JOIN known_out
    ON known_out.study = heard.study
    AND known_out.task = heard.task
    AND known_out.rubric_id = heard.rubric_id
    AND known_out.judge_no = heard.judge_no
    AND known_out.half = halves.half
  LEFT JOIN left_out ON left_out.unit_no = heard.unit_no AND left_out.half = halves.half
  WHERE left_out.unit_no IS NULL
),
voted AS (
  SELECT
    study, task, rubric_id, unit_no, half, g, n_out, truth_words, w, word,
    count(*) AS n,
    count(*) FILTER (WHERE n_elsewhere > 0) AS n_weighted,
    coalesce(sum(ln((right_elsewhere + 1) / CAST(n_elsewhere - right_elsewhere + 1 AS DOUBLE)))
      FILTER (WHERE n_elsewhere > 0), 0) AS weight
  FROM elsewhere
  GROUP BY study, task, rubric_id, unit_no, half, g, n_out, truth_words, w, word
),
tallied AS (
  SELECT
    study, task, rubric_id, unit_no, half, g, n_out, truth_words, w,
    sum(n) AS n_spoke,
    sum(n_weighted) > 0 AS is_weighted,
    arg_max(word, n) AS most_said,
    list_reverse_sort(list(n)) AS counts,
    arg_max(word, weight) AS heaviest,
    list_reverse_sort(list(weight)) AS weights
  FROM voted
  GROUP BY study, task, rubric_id, unit_no, half, g, n_out, truth_words, w
),
replayed AS (
  SELECT
    study, task, rubric_id, half, g, n_out,
    sum(w * CASE
      WHEN n_spoke < 2 THEN NULL
      WHEN is_weighted AND weights[1] > greatest(coalesce(weights[2], 0.0), 0.0) + 1e-9
        THEN truth_part(heaviest, truth_words)
      WHEN NOT is_weighted AND counts[1] > coalesce(counts[2], 0) THEN truth_part(most_said, truth_words)
    END) / sum(CASE
      WHEN n_spoke < 2 THEN NULL
      WHEN is_weighted AND weights[1] > greatest(coalesce(weights[2], 0.0), 0.0) + 1e-9 THEN w
      WHEN NOT is_weighted AND counts[1] > coalesce(counts[2], 0) THEN w
    END) AS p
  FROM tallied
  GROUP BY study, task, rubric_id, half, g, n_out
),
centred AS (
  SELECT *, p - avg(p) OVER (PARTITION BY study, task, rubric_id) AS moved
  FROM replayed
  WHERE p IS NOT NULL
),
weights_moved AS (
  SELECT
    study, task, rubric_id,
    least(max(g), 19) AS g,
    avg((g - n_out) / n_out * moved * moved) AS v_half,
    -- a pair is there where both its items are: its own variance counts g / (g - n_out) times more than once
    avg(g / (g - n_out)) - 1 AS n_more
  FROM centred
  GROUP BY study, task, rubric_id
),
errors AS (
  SELECT
    summed.study, summed.task, summed.rubric_id, summed.rate, summed.n, summed.w, summed.n_effective, summed.hits, summed.p,
    CASE WHEN rate = 'weighted_accuracy' THEN weights_moved.g ELSE summed.g END AS g,
    CASE WHEN rate = 'weighted_accuracy'
         THEN v_half - (summed.n_sides - 1) * n_more * summed.p * (1 - summed.p) / summed.n_effective ELSE summed.jack END AS v_jack,
    summed.p * (1 - summed.p) / summed.n_effective AS v_unit,
    summed.n_sides
  FROM summed
  LEFT JOIN weights_moved
    ON weights_moved.study = summed.study
    AND weights_moved.task = summed.task
    AND weights_moved.rubric_id = summed.rubric_id
),
erring AS (
  SELECT *, sqrt(clustered_variance(v_jack, v_unit, n_sides)) AS se
  FROM errors
),
bounded AS (
  SELECT *, wilson_clustered(p, n_effective, se, g) AS ends
  FROM erring
),
counts AS (
  SELECT
    study, task, rubric_id,
    count(*) AS n_units,
    count(*) FILTER (WHERE n_spoke > 1) AS n_heard,
    count(*) FILTER (WHERE share = 1) AS n_unanimous,
    count(truth_words) FILTER (WHERE n_spoke > 1) AS n_heard_labelled,
    count(truth_words) FILTER (WHERE share = 1) AS n_unanimous_labelled,
    count(majority) AS n_majority,
    count(truth_words) AS n_labelled,
    round(sum(CASE WHEN truth_words IS NOT NULL THEN coalesce(label_weight, 1.0::DOUBLE) END), 9) AS w_labelled
  FROM juries
  GROUP BY study, task, rubric_id
),
rates AS (
  SELECT
    study, task, rubric_id,
    max(p) FILTER (WHERE rate = 'unanimous_share') AS unanimous_p,
    max(se) FILTER (WHERE rate = 'unanimous_share') AS unanimous_se,
    max(p) FILTER (WHERE rate = 'majority_share') AS decided_p,
    max(se) FILTER (WHERE rate = 'majority_share') AS decided_se,
    max(ends.lo) FILTER (WHERE rate = 'unanimous_share') AS unanimous_lo,
    max(ends.hi) FILTER (WHERE rate = 'unanimous_share') AS unanimous_hi,
    max(ends.lo) FILTER (WHERE rate = 'majority_share') AS decided_lo,
    max(ends.hi) FILTER (WHERE rate = 'majority_share') AS decided_hi,
    max(p) FILTER (WHERE rate = 'majority_accuracy') AS majority_p,
    max(se) FILTER (WHERE rate = 'majority_accuracy') AS majority_se,
    max(p) FILTER (WHERE rate = 'weighted_accuracy') AS weighted_p,
    max(se) FILTER (WHERE rate = 'weighted_accuracy') AS weighted_se,
    max(p) FILTER (WHERE rate = 'best_judge_accuracy') AS best_judge_p,
    max(se) FILTER (WHERE rate = 'best_judge_accuracy') AS best_judge_se,
    max(ends.lo) FILTER (WHERE rate = 'majority_accuracy') AS majority_lo,
    max(ends.hi) FILTER (WHERE rate = 'majority_accuracy') AS majority_hi,
    max(ends.lo) FILTER (WHERE rate = 'weighted_accuracy') AS weighted_lo,
    max(ends.hi) FILTER (WHERE rate = 'weighted_accuracy') AS weighted_hi,
    max(ends.lo) FILTER (WHERE rate = 'best_judge_accuracy') AS best_judge_lo,
    max(ends.hi) FILTER (WHERE rate = 'best_judge_accuracy') AS best_judge_hi,
    max(p) FILTER (WHERE rate = 'majority_shared') AS majority_shared_p,
    max(p) FILTER (WHERE rate = 'weighted_shared') AS weighted_shared_p,
    max(p) FILTER (WHERE rate = 'best_judge_shared') AS best_judge_shared_p,
    coalesce(max(n) FILTER (WHERE rate = 'majority_shared'), 0) AS shared_n,
    coalesce(max(n) FILTER (WHERE rate = 'majority_accuracy'), 0) AS majority_n,
    coalesce(max(w) FILTER (WHERE rate = 'majority_accuracy'), 0) AS majority_w,
    coalesce(max(hits) FILTER (WHERE rate = 'majority_accuracy'), 0) AS majority_hits,
    coalesce(max(n) FILTER (WHERE rate = 'weighted_accuracy'), 0) AS weighted_n,
    coalesce(max(w) FILTER (WHERE rate = 'weighted_accuracy'), 0) AS weighted_w,
    coalesce(max(hits) FILTER (WHERE rate = 'weighted_accuracy'), 0) AS weighted_hits,
    coalesce(max(n) FILTER (WHERE rate = 'best_judge_accuracy'), 0) AS best_judge_n,
    coalesce(max(w) FILTER (WHERE rate = 'best_judge_accuracy'), 0) AS best_judge_w,
    coalesce(max(hits) FILTER (WHERE rate = 'best_judge_accuracy'), 0) AS best_judge_hits
  FROM bounded
  GROUP BY study, task, rubric_id
)
SELECT
  counts.study, counts.task, counts.rubric_id,
  n_judges, n_units, n_heard, n_unanimous, n_majority, n_labelled,
  coalesce(majority_n, 0) AS n_majority_labelled,
  coalesce(weighted_n, 0) AS n_weighted_labelled,
  coalesce(best_judge_n, 0) AS n_best_judge_labelled,
  coalesce(shared_n, 0) AS n_shared_labelled,
  unanimous_p AS unanimous_share,
  unanimous_se AS unanimous_share_se,
  unanimous_lo AS unanimous_share_lo,
  unanimous_hi AS unanimous_share_hi,
  decided_p AS majority_share,
  decided_se AS majority_share_se,
  decided_lo AS majority_share_lo,
  decided_hi AS majority_share_hi,
  majority_p AS majority_accuracy,
  majority_se AS majority_accuracy_se,
  majority_lo AS majority_accuracy_lo,
  majority_hi AS majority_accuracy_hi,
  coalesce(majority_hits, 0) / nullif(w_labelled, 0) AS majority_accuracy_min,
  (coalesce(majority_hits, 0) + w_labelled - coalesce(majority_w, 0)) / nullif(w_labelled, 0) AS majority_accuracy_max,
  weighted_p AS weighted_accuracy,
  weighted_se AS weighted_accuracy_se,
  weighted_lo AS weighted_accuracy_lo,
  weighted_hi AS weighted_accuracy_hi,
  coalesce(weighted_hits, 0) / nullif(w_labelled, 0) AS weighted_accuracy_min,
  (coalesce(weighted_hits, 0) + w_labelled - coalesce(weighted_w, 0)) / nullif(w_labelled, 0) AS weighted_accuracy_max,
  best_judge_p AS best_judge_accuracy,
  best_judge_se AS best_judge_accuracy_se,
  best_judge_lo AS best_judge_accuracy_lo,
  best_judge_hi AS best_judge_accuracy_hi,
  coalesce(best_judge_hits, 0) / nullif(w_labelled, 0) AS best_judge_accuracy_min,
  (coalesce(best_judge_hits, 0) + w_labelled - coalesce(best_judge_w, 0)) / nullif(w_labelled, 0) AS best_judge_accuracy_max,
  majority_shared_p AS majority_accuracy_shared,
  weighted_shared_p AS weighted_accuracy_shared,
  best_judge_shared_p AS best_judge_accuracy_shared,
  best_template_id, best_judge.*,
  n_heard_labelled,
  n_unanimous_labelled,
  normal_two_sided(greatest(abs(n_unanimous_labelled - n_unanimous * (n_heard_labelled / nullif(n_heard, 0))) - 0.5, 0)
    / sqrt(nullif(n_unanimous * ((n_heard - n_unanimous) / nullif(n_heard - 1, 0)) * (n_heard_labelled / nullif(n_heard, 0))
      * (1 - n_heard_labelled / nullif(n_heard, 0)), 0))) AS p_labels_alike,
  cost_usd,
  n_cost_unknown,
  CASE WHEN n_cost_unknown = 0 THEN cost_usd / nullif(n_majority, 0) END AS cost_per_verdict_usd,
  best_judge_price AS best_judge_cost_per_verdict_usd,
  cheapest_judge_price AS cheapest_judge_cost_per_verdict_usd,
  cheapest_template_id, cheapest_judge.*
FROM counts
JOIN cells
  ON cells.study = counts.study
  AND cells.task = counts.task
  AND cells.rubric_id = counts.rubric_id
LEFT JOIN rates
  ON rates.study = counts.study
  AND rates.task = counts.task
  AND rates.rubric_id = counts.rubric_id;
