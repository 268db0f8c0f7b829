-- grain: study, task, template_id, judges
-- question: How far do all judges together agree beyond chance?
-- source: agreement_patterns, over all rubrics, of prompts by field (task `prompts: FIELD`); judges is `models`,
--   `lists` (models, of the pairs that their orders of lists imply), or `people` (labels under the same template). A
--   unit is an item, or a pair of items in one order, for people in whichever; those with a single vote are out. A
--   judge has one vote of a unit: where its repeats differ, each of the words has its part of it, and what judges have
--   in common is counted as if one word of each were drawn, so that repeats move no figure and hard units stay.
--   n_clusters items (prompts, where models' outputs are judged) have a unit.
-- estimators:
--   - agreement: the share of a unit's pairs of votes that agree, averaged; interval wilson_mean
--   - unanimity: n_unanimous / n_units, the units whose votes are all equal, with one vote of each judge; with more,
--     how often one word of each would be; Wilson, with the effective size
--   - agreement_min, agreement_max, unanimity_min, unanimity_max: what the n_units_open units leave possible that lack
--     an answer, one of several repeats too, of a judge who was asked: that judge unlike every other, or of the most
--     frequent word
--   - alpha_nominal, alpha_ordinal, alpha_interval: Krippendorff's, votes taken as names, as ranks, as numbers
--     (vote_scale; n_units_scaled units), of expected coincidences
--   - fleiss_kappa: over the n_units_complete units with a vote of every judge
--   - ac1: Gwet's
--   - alpha_nominal_se, alpha_ordinal_se, alpha_interval_se, ac1_se: infinitesimal jackknives over items, or pairs of
--     items (ranks and chance agreement moving along); their intervals are normal, cut off at 1
--   - agreement_lo_in_general, agreement_hi_in_general, unanimity_lo_in_general, unanimity_hi_in_general,
--     alpha_nominal_lo_in_general, alpha_nominal_hi_in_general, alpha_ordinal_lo_in_general,
--     alpha_ordinal_hi_in_general, alpha_interval_lo_in_general, alpha_interval_hi_in_general, ac1_lo_in_general,
--     ac1_hi_in_general: for items in general (clustered_variance), each item left out in turn by what it moves, and
--     nothing taken off for an item's two sides, and of lists each list too, as in metric_agreement; as
--     wilson_clustered for the two shares, by t over n_clusters - 1 for the others. Those above are of these items
--   - n_units_majority: the units that have a single most frequent vote
-- reference: Krippendorff (alpha); Fleiss (kappa); Gwet 2008 (AC1); clustered, wilson_clustered.
-- nulls: the figures beyond chance are NULL where every vote is the same: there is nothing to agree about. fleiss_kappa
--   is NULL also without a complete unit. What is of items in general is NULL below 5 of them, what is of these items
--   for lists, whose pairs are no draws.
-- note: unanimity is of the judges that voted on a unit: fewer agree more easily, so where answers are missing it is
--   above that of all judges (by simulation of three, with two fifths of one order missing, its interval holds that in
--   .92).

CREATE OR REPLACE VIEW metric_agreement_overall AS
WITH patterns AS MATERIALIZED (
  SELECT * FROM agreement_patterns
),
listed AS (
  SELECT pattern_no, study, task, template_id, n_subjects, unnest(ballots) AS ballot
  FROM patterns
),
parted AS (
  SELECT pattern_no, study, task, template_id, n_subjects, string_split(ballot, chr(31)) AS part
  FROM listed
),
votes AS MATERIALIZED (
  SELECT
    dense_rank() OVER (ORDER BY study, task, template_id, part[1]) AS set_no,
    pattern_no, study, task, template_id, n_subjects,
    CASE part[1] WHEN 'model' THEN 'models' WHEN 'list' THEN 'lists' ELSE 'people' END AS judges,
    part[2] || chr(31) || part[3] || chr(31) || part[4] AS judge,
    nullif(part[5], '') AS vote_1, nullif(part[6], '') AS vote_2,
    part[7] = '1' AS is_open_1, part[8] = '1' AS is_open_2
  FROM parted
  WHERE part[1] NOT IN ('truth', 'best')
),
asked AS MATERIALIZED (
  SELECT
    set_no, task, pattern_no, 1 AS place, judge, n_subjects AS n, string_split(vote_1, chr(30)) AS words, is_open_1 AS is_open
  FROM votes
  WHERE is_open_1 OR vote_1 IS NOT NULL
  UNION ALL
  SELECT
    set_no, task, pattern_no, 2 AS place, judge, n_subjects AS n, string_split(vote_2, chr(30)) AS words, is_open_2 AS is_open
  FROM votes
  WHERE is_open_2 OR vote_2 IS NOT NULL
),
sets AS (
  SELECT set_no, study, task, template_id, judges, count(DISTINCT judge) AS n_judges
  FROM votes
  WHERE vote_1 IS NOT NULL OR vote_2 IS NOT NULL
  GROUP BY set_no, study, task, template_id, judges
),
worded AS (
  SELECT
    set_no, task, pattern_no, place, judge, n, is_open, 1.0::DOUBLE / array_length(words) AS part, unnest(words) AS vote
  FROM asked
  WHERE array_length(words) > 0
),
-- a judge's words, each with its part of one vote; as numbers only where all of them are
spoken AS (
  SELECT
    *,
    vote_scale(task, vote) AS x,
    min(CASE WHEN vote_scale(task, vote) IS NULL THEN 0 ELSE 1 END) OVER (
      PARTITION BY set_no, pattern_no, place, judge) AS is_scaled
  FROM worded
),
by_judge AS MATERIALIZED (
  SELECT
    set_no, task, pattern_no, place, judge, vote,
    max(n) AS n,
    max(x) AS x,
    max(is_scaled) AS is_scaled,
    bool_or(is_open) AS is_open,
    sum(part) AS part
  FROM spoken
  GROUP BY set_no, task, pattern_no, place, judge, vote
),
-- one row per unit and vote: k judges gave it, in parts; what a judge's own words have in common is no agreement
counted AS (
  SELECT
    set_no, pattern_no, place, vote,
    max(n) AS n,
    max(x) AS x,
    round(sum(part), 12) AS k,
    round(sum(part * is_scaled), 12) AS k_scaled,
    sum(part * part) AS own,
    count(*) AS n_judges_here,
    exp(sum(ln(part))) AS all_part
  FROM by_judge
  GROUP BY set_no, pattern_no, place, vote
),
sized AS MATERIALIZED (
  SELECT
    *,
    round(sum(k) OVER unit) AS m,
    max(k) OVER unit AS k_top,
    round(sum(k_scaled) OVER unit) AS m_scaled
  FROM counted
  WINDOW unit AS (PARTITION BY set_no, pattern_no, place)
),
n_rated AS (
  SELECT set_no, sum(n * k / m) AS n_rated
  FROM sized
  GROUP BY set_no
),
categories AS (
  SELECT
    sized.set_no, vote, max(x) AS x,
    round(coalesce(sum(CASE WHEN m > 1 THEN n * k END), 0), 9) AS total,
    CASE WHEN max(x) IS NOT NULL
         THEN round(coalesce(sum(CASE WHEN m_scaled > 1 THEN n * k_scaled END), 0), 9) END AS total_scaled,
    sum(n * k / m) / max(n_rated) AS share
  FROM sized
  JOIN n_rated ON n_rated.set_no = sized.set_no
  GROUP BY sized.set_no, vote
),
-- the middle rank of a category; votes that are equal as numbers share it
ranked AS (
  SELECT
    *,
    count(*) OVER (PARTITION BY set_no) AS n_categories,
    sum(share * (1 - 2 * share)) OVER (PARTITION BY set_no) AS share_slope,
    sum(total_scaled) OVER (PARTITION BY set_no ORDER BY x NULLS LAST)
      - sum(total_scaled) OVER (PARTITION BY set_no, x) / 2 AS r
  FROM categories
),
wholes AS (
  SELECT
    set_no,
    sum(total) AS size,
    power(sum(total), 2) - sum(total * total) AS spread,
    sum(total_scaled) AS size_scaled,
    sum(total_scaled * x) AS sum_x,
    sum(total_scaled * x * x) AS squares_x,
    sum(total_scaled) * sum(total_scaled * x * x) - power(sum(total_scaled * x), 2) AS spread_x,
    sum(total_scaled * r) AS sum_r,
    sum(total_scaled * r * r) AS squares_r,
    sum(total_scaled) * sum(total_scaled * r * r) - power(sum(total_scaled * r), 2) AS spread_r,
    sum(share * (1 - share)) / nullif(max(n_categories) - 1, 0) AS chance_ac1
  FROM ranked
  GROUP BY set_no
),
-- where a judge's own words differ, as numbers and as ranks
placed AS MATERIALIZED (
  SELECT
    by_judge.set_no, pattern_no, place, by_judge.vote, n, part, ranked.x, r,
    ranked.x - sum(part * ranked.x) OVER voted AS x_apart,
    r - sum(part * r) OVER voted AS r_apart
  FROM by_judge
  JOIN ranked ON ranked.set_no = by_judge.set_no AND ranked.vote = by_judge.vote
  WHERE is_scaled = 1
  WINDOW voted AS (PARTITION BY by_judge.set_no, pattern_no, place, judge)
),
own_words AS (
  SELECT
    set_no, pattern_no, place,
    sum(part * x_apart * x_apart) AS own_x,
    sum(part * r_apart * r_apart) AS own_r
  FROM placed
  GROUP BY set_no, pattern_no, place
),
units AS MATERIALIZED (
  SELECT
    sized.set_no, sized.pattern_no, sized.place,
    max(n) AS n,
    max(m) AS m,
    max(m_scaled) AS m_scaled,
    sum(k * k) AS squares,
    -- of two judges, not of the same one twice
    max(m) * max(m) - max(m) - sum(k * k) + sum(own) AS n_apart,
    count(*) AS n_words,
    round(sum(CASE WHEN n_judges_here = m THEN all_part ELSE 0.0 END), 12) AS unanimous,
    count(*) FILTER (WHERE k = k_top) AS n_tops,
    sum(k * total) AS moved_spread,
    sum(k_scaled * ranked.x) AS sum_x,
    sum(k_scaled * ranked.x * ranked.x) AS squares_x,
    max(own_x) AS own_x,
    sum(CASE WHEN ranked.x IS NOT NULL THEN k_scaled * r END) AS sum_r,
    sum(CASE WHEN ranked.x IS NOT NULL THEN k_scaled * r * r END) AS squares_r,
    max(own_r) AS own_r,
    (sum((1 - 2 * share) * k / m) - max(share_slope)) / nullif(max(n_categories) - 1, 0) AS moved_chance
  FROM sized
  JOIN ranked ON ranked.set_no = sized.set_no AND ranked.vote = sized.vote
  LEFT JOIN own_words
    ON own_words.set_no = sized.set_no
    AND own_words.pattern_no = sized.pattern_no
    AND own_words.place = sized.place
  GROUP BY sized.set_no, sized.pattern_no, sized.place
),
sums AS (
  SELECT
    set_no,
    coalesce(CAST(sum(n) FILTER (WHERE m > 1) AS BIGINT), 0) AS n_units,
    coalesce(CAST(sum(n) FILTER (WHERE m_scaled > 1) AS BIGINT), 0) AS n_units_scaled,
    coalesce(CAST(sum(n) FILTER (WHERE m > 1 AND n_words = 1) AS BIGINT), 0) AS n_unanimous,
    sum(CASE WHEN m > 1 THEN n * unanimous END) AS unanimous_all,
    coalesce(CAST(sum(n) FILTER (WHERE m > 1 AND n_tops = 1) AS BIGINT), 0) AS n_units_majority,
    sum(CASE WHEN m > 1 THEN n * (1 - n_apart / (m * (m - 1))) END) AS agreed,
    sum(CASE WHEN m > 1 THEN n * n_apart / (m - 1) END) AS apart,
    sum(CASE WHEN m_scaled > 1 THEN n * (m_scaled * squares_x - sum_x * sum_x - own_x) / (m_scaled - 1) END) AS apart_x,
    sum(CASE WHEN m_scaled > 1 THEN n * (m_scaled * squares_r - sum_r * sum_r - own_r) / (m_scaled - 1) END) AS apart_r
  FROM units
  GROUP BY set_no
),
-- what the ordinal alpha moves by when a category's middle rank does, and by one more vote in a category
rank_moves AS (
  SELECT
    ranked.set_no, ranked.vote, ranked.x,
    -(max(size_scaled) - 1) * (
      coalesce(sum(CASE WHEN units.m_scaled > 1 THEN
        2 * placed.n * placed.part * (units.m_scaled * ranked.r - units.sum_r - placed.r_apart) / (units.m_scaled - 1) END), 0)
        / nullif(max(spread_r), 0)
      - max(apart_r) * 2 * max(total_scaled) * (max(size_scaled) * max(ranked.r) - max(wholes.sum_r))
        / nullif(max(power(spread_r, 2)), 0)
    ) AS move
  FROM ranked
  JOIN placed ON placed.set_no = ranked.set_no AND placed.vote = ranked.vote
  JOIN units
    ON units.set_no = placed.set_no AND units.pattern_no = placed.pattern_no AND units.place = placed.place
  JOIN wholes ON wholes.set_no = ranked.set_no
  JOIN sums ON sums.set_no = ranked.set_no
  WHERE ranked.x IS NOT NULL
  GROUP BY ranked.set_no, ranked.vote, ranked.x
),
vote_moves AS (
  SELECT
    set_no, vote,
    sum(move) OVER (PARTITION BY set_no)
      - sum(move) OVER (PARTITION BY set_no ORDER BY x) + sum(move) OVER (PARTITION BY set_no, x) / 2 AS move
  FROM rank_moves
),
unit_moves AS (
  SELECT sized.set_no, pattern_no, place, sum(k_scaled * move) AS moved_ranks
  FROM sized
  JOIN vote_moves ON vote_moves.set_no = sized.set_no AND vote_moves.vote = sized.vote
  GROUP BY sized.set_no, pattern_no, place
),
figures AS MATERIALIZED (
  SELECT
    sums.*, size, spread, size_scaled, wholes.sum_x, wholes.squares_x, spread_x, wholes.sum_r, wholes.squares_r,
    spread_r, chance_ac1, n_rated,
    agreed / nullif(n_units, 0) AS agreement,
    unanimous_all / nullif(n_units, 0) AS unanimity,
    CASE WHEN spread > 0 THEN 1 - (size - 1) * apart / spread END AS alpha_nominal,
    CASE WHEN spread_r > 0 THEN 1 - (size_scaled - 1) * apart_r / spread_r END AS alpha_ordinal,
    CASE WHEN spread_x > 0 THEN 1 - (size_scaled - 1) * apart_x / spread_x END AS alpha_interval,
    CASE WHEN chance_ac1 > 0 THEN (agreed / nullif(n_units, 0) - chance_ac1) / (1 - chance_ac1) END AS ac1
  FROM sums
  JOIN wholes ON wholes.set_no = sums.set_no
  JOIN n_rated ON n_rated.set_no = sums.set_no
),
-- how much every estimate moves with one more of a unit, added up over the places of a pattern
moves AS MATERIALIZED (
  SELECT
    units.set_no, units.pattern_no, max(n) AS n,
    count(*) FILTER (WHERE m > 1) AS n_places,
    count(*) FILTER (WHERE m_scaled > 1) AS n_places_scaled,
    sum(CASE WHEN m > 1 THEN 1 - n_apart / (m * (m - 1)) - agreement ELSE 0 END) AS agreement_move,
    sum(CASE WHEN m > 1 THEN unanimous - unanimity ELSE 0 END) AS unanimity_move,
    sum(CASE WHEN m > 1 THEN
      -(size - 1) * n_apart / (m - 1) / nullif(spread, 0)
      - apart / nullif(spread, 0) * m
      + (size - 1) * apart / nullif(spread * spread, 0) * 2 * (size * m - moved_spread) ELSE 0 END) AS nominal_move,
    sum(CASE WHEN m_scaled > 1 THEN
      -(size_scaled - 1) * (m_scaled * units.squares_x - units.sum_x * units.sum_x - own_x) / (m_scaled - 1)
        / nullif(spread_x, 0)
      - apart_x / nullif(spread_x, 0) * m_scaled
      + (size_scaled - 1) * apart_x / nullif(spread_x * spread_x, 0)
        * (m_scaled * figures.squares_x + size_scaled * units.squares_x - 2 * figures.sum_x * units.sum_x)
      ELSE 0 END) AS interval_move,
    sum(CASE WHEN m_scaled > 1 THEN
      -(size_scaled - 1) * (m_scaled * units.squares_r - units.sum_r * units.sum_r - own_r) / (m_scaled - 1)
        / nullif(spread_r, 0)
      - apart_r / nullif(spread_r, 0) * m_scaled
      + (size_scaled - 1) * apart_r / nullif(spread_r * spread_r, 0)
        * (m_scaled * figures.squares_r + size_scaled * units.squares_r - 2 * figures.sum_r * units.sum_r)
      + moved_ranks
      ELSE 0 END) AS ordinal_move,
    sum(CASE WHEN m > 1 THEN (1 - n_apart / (m * (m - 1)) - agreement) / n_units / (1 - chance_ac1) ELSE 0 END
      - (1 - agreement) / power(1 - chance_ac1, 2) * moved_chance / n_rated) AS ac1_move
  FROM units
  JOIN figures ON figures.set_no = units.set_no
  LEFT JOIN unit_moves
    ON unit_moves.set_no = units.set_no
    AND unit_moves.pattern_no = units.pattern_no
    AND unit_moves.place = units.place
  GROUP BY units.set_no, units.pattern_no
),
errors AS MATERIALIZED (
  SELECT
    set_no,
    sum(n_placed) AS g,
    sum(n_scaled) AS g_scaled,
    sum(n * nominal_move) / sum(n_placed) AS nominal_mean,
    sum(n * ordinal_move) / sum(n_scaled) AS ordinal_mean,
    sum(n * interval_move) / sum(n_scaled) AS interval_mean,
    sqrt(sum(n * power(agreement_move, 2))) AS agreement_error,
    sqrt(sum(n * power(unanimity_move, 2))) AS unanimity_error,
    sqrt(greatest(0, sum(n * power(nominal_move, 2)) - power(sum(n * nominal_move), 2) / sum(n_placed))) AS nominal_error,
    sqrt(greatest(0, sum(n * power(ordinal_move, 2)) - power(sum(n * ordinal_move), 2) / sum(n_scaled))) AS ordinal_error,
    sqrt(greatest(0, sum(n * power(interval_move, 2)) - power(sum(n * interval_move), 2) / sum(n_scaled))) AS interval_error,
    sqrt(sum(n * power(ac1_move, 2))) AS ac1_error
  FROM (
    SELECT *, CASE WHEN n_places > 0 THEN n END AS n_placed, CASE WHEN n_places_scaled > 0 THEN n END AS n_scaled FROM moves
  )
  GROUP BY set_no
),
-- what each item, or prompt, moves: it is a part of several patterns, and as often as its count says
drawn AS (
  SELECT pattern_no, unnest(clusters) AS part
  FROM patterns
),
cluster_moves AS (
  SELECT
    moves.set_no,
    bool_or(part.is_item) AS is_item,
    sum(part.value * n_places) AS n_here,
    sum(part.value * n_places_scaled) AS n_scaled_here,
    sum(CASE WHEN n_places > 0 THEN part.value ELSE 0 END) AS g_here,
    sum(CASE WHEN n_places_scaled > 0 THEN part.value ELSE 0 END) AS g_scaled_here,
    sum(part.value * agreement_move) AS agreement_move,
    sum(part.value * unanimity_move) AS unanimity_move,
    sum(part.value * nominal_move) AS nominal_move,
    sum(part.value * ordinal_move) AS ordinal_move,
    sum(part.value * interval_move) AS interval_move,
    sum(part.value * ac1_move) AS ac1_move
  FROM moves
  JOIN drawn ON drawn.pattern_no = moves.pattern_no
  GROUP BY moves.set_no, part.key
  HAVING sum(part.value * n_places) > 0
),
-- a share of n_here in n that is left out moves more than its derivative says, by n / (n - n_here)
jackknives AS (
  SELECT
    cluster_moves.set_no,
    count(*) FILTER (WHERE is_item) AS n_clusters,
    sum(n_here) / max(n_units) AS n_sides,
    (count(*) - 1) / count(*) * sum(power(agreement_move / nullif(n_units - n_here, 0), 2)) AS agreement_jack,
    (count(*) - 1) / count(*) * sum(power(unanimity_move / nullif(n_units - n_here, 0), 2)) AS unanimity_jack,
    (count(*) - 1) / count(*)
      * sum(power((nominal_move - nominal_mean * g_here) * n_units / nullif(n_units - n_here, 0), 2)) AS nominal_jack,
    (count(*) - 1) / count(*) * sum(power((ordinal_move - ordinal_mean * g_scaled_here) * n_units_scaled
      / nullif(n_units_scaled - n_scaled_here, 0), 2)) AS ordinal_jack,
    (count(*) - 1) / count(*) * sum(power((interval_move - interval_mean * g_scaled_here) * n_units_scaled
      / nullif(n_units_scaled - n_scaled_here, 0), 2)) AS interval_jack,
    (count(*) - 1) / count(*) * sum(power(ac1_move * n_units / nullif(n_units - n_here, 0), 2)) AS ac1_jack
  FROM cluster_moves
  JOIN figures ON figures.set_no = cluster_moves.set_no
  JOIN errors ON errors.set_no = cluster_moves.set_no
  GROUP BY cluster_moves.set_no
),
-- what every judge that was asked says for good, and how many may still say what they like, by unit
said_by_vote AS (
  SELECT
    set_no, pattern_no, place, vote, sum(part) AS k, sum(part * part) AS own, count(*) AS n_judges_here,
    exp(sum(ln(part))) AS all_part
  FROM by_judge
  WHERE NOT is_open
  GROUP BY set_no, pattern_no, place, vote
),
said_sized AS (
  SELECT *, round(sum(k) OVER (PARTITION BY set_no, pattern_no, place)) AS m_said FROM said_by_vote
),
said AS (
  SELECT
    set_no, pattern_no, place, max(k) AS k_top, sum(k * k) AS squares, sum(own) AS own,
    round(sum(CASE WHEN n_judges_here = m_said THEN all_part ELSE 0.0 END), 12) AS unanimous
  FROM said_sized
  GROUP BY set_no, pattern_no, place
),
asked_of AS (
  SELECT set_no, pattern_no, place, max(n) AS n, count(*) AS m, count(*) FILTER (WHERE NOT is_open) AS m_said
  FROM asked
  GROUP BY set_no, pattern_no, place
),
left_open AS (
  SELECT
    asked_of.set_no, n, m, m_said,
    coalesce(k_top, 0) AS k_top, coalesce(squares - own, 0) AS in_common, coalesce(unanimous, 1) AS unanimous
  FROM asked_of
  LEFT JOIN said
    ON said.set_no = asked_of.set_no
    AND said.pattern_no = asked_of.pattern_no
    AND said.place = asked_of.place
),
limits AS (
  SELECT
    set_no,
    CAST(sum(CASE WHEN m_said < m THEN n ELSE 0 END) AS BIGINT) AS n_units_open,
    sum(n * in_common / (m * (m - 1))) / sum(n) AS agreement_min,
    sum(n * (in_common + (m - m_said) * (2 * k_top + m - m_said - 1)) / (m * (m - 1))) / sum(n) AS agreement_max,
    sum(CASE WHEN m_said = m THEN n * unanimous ELSE 0 END) / sum(n) AS unanimity_min,
    sum(n * unanimous) / sum(n) AS unanimity_max
  FROM left_open
  WHERE m > 1
  GROUP BY set_no
),
complete AS (
  SELECT
    sized.set_no, vote,
    sum(n * k) AS total,
    sum(n * (k * k - own)) AS equal_pairs,
    sum(n * k / m) AS n_units
  FROM sized
  JOIN sets ON sets.set_no = sized.set_no AND sets.n_judges = sized.m
  WHERE m > 1
  GROUP BY sized.set_no, vote
),
fleiss AS (
  SELECT
    complete.set_no,
    CAST(round(sum(n_units)) AS BIGINT) AS n_units_complete,
    sum(equal_pairs) / (sum(total) * (max(n_judges) - 1)) AS agreement_complete,
    sum(total * total) / power(sum(total), 2) AS chance
  FROM complete
  JOIN sets ON sets.set_no = complete.set_no
  GROUP BY complete.set_no
),
measured AS (
  SELECT
    sets.study, sets.task, sets.template_id, sets.judges, sets.n_judges, figures.*,
    coalesce(n_units_complete, 0) AS n_units_complete,
    n_units_open, agreement_min, agreement_max, unanimity_min, unanimity_max,
    coalesce(CAST(g AS BIGINT), n_units) AS n_subjects,
    -- the small-sample factor of a jackknife: g / (g - 1)
    CASE WHEN g > 1 THEN agreement_error / n_units * sqrt(g / (g - 1)) END AS agreement_se,
    unanimity_error / n_units AS unanimity_se,
    n_clusters,
    CASE WHEN judges = 'lists' THEN n_sides ELSE 1 END AS n_sides,
    -- pairs that lists imply are no draws
    CASE WHEN judges <> 'lists' THEN 1 END AS drawn,
    agreement_jack, unanimity_jack, nominal_jack, ordinal_jack, interval_jack, ac1_jack,
    CASE WHEN n_clusters >= 5 THEN t_two_sided_95(n_clusters - 1) END AS t,
    CASE WHEN unanimity_error > 1e-9 THEN effective_size(unanimity, n_units, unanimity_error / n_units)
         ELSE coalesce(g, n_units) END AS n_effective,
    CASE WHEN n_units_complete > 0 AND chance < 1 THEN (agreement_complete - chance) / (1 - chance) END AS fleiss_kappa,
    CASE WHEN g > 1 AND nominal_error > 1e-9 THEN nominal_error * sqrt(g / (g - 1)) END AS alpha_nominal_se,
    CASE WHEN g_scaled > 1 AND ordinal_error > 1e-9 AND alpha_ordinal IS NOT NULL
         THEN ordinal_error * sqrt(g_scaled / (g_scaled - 1)) END AS alpha_ordinal_se,
    CASE WHEN g_scaled > 1 AND interval_error > 1e-9 AND alpha_interval IS NOT NULL
         THEN interval_error * sqrt(g_scaled / (g_scaled - 1)) END AS alpha_interval_se,
    CASE WHEN g > 1 AND ac1_error > 1e-9 AND ac1 IS NOT NULL THEN ac1_error * sqrt(g / (g - 1)) END AS ac1_se
  FROM sets
  JOIN figures ON figures.set_no = sets.set_no
  LEFT JOIN errors ON errors.set_no = sets.set_no
  LEFT JOIN jackknives ON jackknives.set_no = sets.set_no
  LEFT JOIN fleiss ON fleiss.set_no = sets.set_no
  LEFT JOIN limits ON limits.set_no = sets.set_no
),
clustered AS (
  SELECT
    *,
    CASE WHEN t > 0 THEN sqrt(clustered_variance(agreement_jack, agreement_se * agreement_se, n_sides)) END
      AS agreement_general_se,
    CASE WHEN t > 0 THEN sqrt(clustered_variance(unanimity_jack, unanimity_se * unanimity_se, n_sides)) END
      AS unanimity_general_se,
    t * sqrt(clustered_variance(nominal_jack, alpha_nominal_se * alpha_nominal_se, n_sides)) AS nominal_reach,
    t * sqrt(clustered_variance(ordinal_jack, alpha_ordinal_se * alpha_ordinal_se, n_sides)) AS ordinal_reach,
    t * sqrt(clustered_variance(interval_jack, alpha_interval_se * alpha_interval_se, n_sides)) AS interval_reach,
    t * sqrt(clustered_variance(ac1_jack, ac1_se * ac1_se, n_sides)) AS ac1_reach
  FROM measured
),
bounded AS (
  SELECT
    *,
    CASE WHEN drawn = 1 THEN wilson_mean(agreement, n_subjects, agreement_se) END AS agreement_ends,
    n_effective * drawn AS n_effective_here,
    ac1_se * drawn AS ac1_drawn,
    alpha_nominal_se * drawn AS nominal_drawn,
    alpha_ordinal_se * drawn AS ordinal_drawn,
    alpha_interval_se * drawn AS interval_drawn,
    CASE WHEN t > 0 THEN wilson_mean(agreement, n_subjects, agreement_general_se, n_clusters - 1) END
      AS agreement_general,
    CASE WHEN t IS NULL THEN NULL
         WHEN unanimity_se > 1e-9 THEN effective_size(unanimity, n_units, unanimity_general_se) ELSE n_subjects END
      AS n_unanimity
  FROM clustered
)
SELECT
  study, task, template_id, judges,
  n_judges,
  n_subjects,
  n_units,
  n_units_complete,
  n_units_majority,
  n_units_scaled,
  n_units_open,
  agreement,
  agreement_min,
  agreement_max,
  agreement_ends.lo AS agreement_lo,
  agreement_ends.hi AS agreement_hi,
  agreement_general.lo AS agreement_lo_in_general,
  agreement_general.hi AS agreement_hi_in_general,
  n_unanimous,
  unanimity,
  unanimity_min,
  unanimity_max,
  wilson_lo(unanimity * n_effective_here, n_effective_here) AS unanimity_lo,
  wilson_hi(unanimity * n_effective_here, n_effective_here) AS unanimity_hi,
  wilson_lo(unanimity * n_unanimity, n_unanimity, t) AS unanimity_lo_in_general,
  wilson_hi(unanimity * n_unanimity, n_unanimity, t) AS unanimity_hi_in_general,
  fleiss_kappa,
  ac1,
  ac1_drawn AS ac1_se,
  ac1 - 1.959963984540054 * ac1_drawn AS ac1_lo,
  CASE WHEN ac1_drawn >= 0 THEN least(1.0, ac1 + 1.959963984540054 * ac1_drawn) END AS ac1_hi,
  CASE WHEN ac1_reach > 1e-9 THEN ac1 - ac1_reach END AS ac1_lo_in_general,
  CASE WHEN ac1_reach > 1e-9 THEN least(1.0, ac1 + ac1_reach) END AS ac1_hi_in_general,
  alpha_nominal,
  nominal_drawn AS alpha_nominal_se,
  alpha_nominal - 1.959963984540054 * nominal_drawn AS alpha_nominal_lo,
  CASE WHEN nominal_drawn >= 0 THEN least(1.0, alpha_nominal + 1.959963984540054 * nominal_drawn) END AS alpha_nominal_hi,
  CASE WHEN nominal_reach > 1e-9 THEN alpha_nominal - nominal_reach END AS alpha_nominal_lo_in_general,
  CASE WHEN nominal_reach > 1e-9 THEN least(1.0, alpha_nominal + nominal_reach) END AS alpha_nominal_hi_in_general,
  alpha_ordinal,
  ordinal_drawn AS alpha_ordinal_se,
  alpha_ordinal - 1.959963984540054 * ordinal_drawn AS alpha_ordinal_lo,
  CASE WHEN ordinal_drawn >= 0 THEN least(1.0, alpha_ordinal + 1.959963984540054 * ordinal_drawn) END AS alpha_ordinal_hi,
  CASE WHEN ordinal_reach > 1e-9 THEN alpha_ordinal - ordinal_reach END AS alpha_ordinal_lo_in_general,
  CASE WHEN ordinal_reach > 1e-9 THEN least(1.0, alpha_ordinal + ordinal_reach) END AS alpha_ordinal_hi_in_general,
  alpha_interval,
  interval_drawn AS alpha_interval_se,
  alpha_interval - 1.959963984540054 * interval_drawn AS alpha_interval_lo,
  CASE WHEN interval_drawn >= 0 THEN least(1.0, alpha_interval + 1.959963984540054 * interval_drawn) END AS alpha_interval_hi,
  CASE WHEN interval_reach > 1e-9 THEN alpha_interval - interval_reach END AS alpha_interval_lo_in_general,
  CASE WHEN interval_reach > 1e-9 THEN least(1.0, alpha_interval + interval_reach) END AS alpha_interval_hi_in_general,
  n_clusters
FROM bounded
WHERE n_units > 0;
