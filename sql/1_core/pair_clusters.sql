-- grain: study, cell, cluster_unit, cluster_item
-- question: What do the pairs of each item, or of each prompt, come to, for whatever speaks of items in general?
-- source: pair_status. A pair is counted for each of its two items (n_sides = 2), and only once, for its prompt, where
--   either is known to be a model's output (n_sides = 1); one that a list implies for its two items, over all lists, and
--   for its list, whose pairs share an answer (n_sides = 3, which counts twice what two pairs share by both): sums over a cell's clusters, each divided by its n_sides,
--   are sums over its pairs. first_won and second_won are Mantel and Haenszel's terms, a pair being a stratum of votes: votes
--   for the first in one order times those for the first in the other, and the same for the second, each divided by
--   the pair's votes; ties are no votes here. _squares and products are sums over pairs of their squares and product.
--   wins, ties and flips: of each pair in n_both (votes in both orders) the share of its votes of one order with its
--   votes of the other, each with each, that name the same winner, are two ties, name different winners; with one vote
--   per order 1 or 0, as its status says. n_decided pairs have a winner in both orders, n_repeated more than one vote
--   in one. n_consistent_win to n_soft_recency count statuses, which are of majorities, n_split pairs in n_both without
--   one. n_undecided and n_missing_reverse have no vote in an order. wins_least, ties_least, flips_least: the shares if
--   answers that are unread or missing agree with none, left_open what they leave open.
--   both_good and both_bad: of each of the n_said pairs with a vote in any order the share of its votes that say so, ties
--   of that kind; the shares if answers that are unread or missing say no such thing are _least, of n_asked pairs, and
--   unsaid what they leave open. n_both_good and n_both_bad count votes.
--   Lists whose best alone was asked for are left out: only pairs with the best in both orders could be seen there.

CREATE OR REPLACE VIEW pair_clusters AS
WITH tables AS (
  SELECT
    study, cell(pair_status) AS cell, unit_id, item_lo, item_hi, status,
    coalesce(candidate_lo, candidate_hi) AS candidate,
    list_kind, n_both_good, n_both_bad, has_tie_kinds,
    n_lo_won_lo_first + n_hi_won_lo_first + n_tied_lo_first + n_lo_won_hi_first + n_hi_won_hi_first + n_tied_hi_first AS n_said,
    n_open_lo_first + n_open_hi_first AS n_open,
    n_lo_won_lo_first, n_hi_won_lo_first, n_lo_won_hi_first, n_hi_won_hi_first,
    CAST(n_lo_won_lo_first + n_hi_won_lo_first + n_lo_won_hi_first + n_hi_won_hi_first AS DOUBLE) AS n_votes,
    coalesce(lo_part + hi_part, 0) AS win,
    coalesce(tie_part, 0) AS tie,
    coalesce(primacy_part + recency_part, 0) AS flip,
    (n_lo_won_lo_first + n_hi_won_lo_first + n_tied_lo_first) * (n_lo_won_hi_first + n_hi_won_hi_first + n_tied_hi_first)
      AS n_crossed_votes,
    (n_open_lo_first + n_lo_won_lo_first + n_hi_won_lo_first + n_tied_lo_first)
      * (n_open_hi_first + n_lo_won_hi_first + n_hi_won_hi_first + n_tied_hi_first) AS n_crossed_asked,
    n_lo_won_lo_first + n_hi_won_lo_first + n_tied_lo_first > 1 OR n_lo_won_hi_first + n_hi_won_hi_first + n_tied_hi_first > 1
      AS is_repeated
  FROM pair_status
  WHERE coalesce(list_kind, '') <> 'best'
),
terms AS (
  SELECT
    *,
    coalesce(n_lo_won_lo_first * n_hi_won_hi_first / nullif(n_votes, 0), 0) AS first_term,
    coalesce(n_hi_won_lo_first * n_lo_won_hi_first / nullif(n_votes, 0), 0) AS second_term,
    coalesce(n_crossed_votes / nullif(n_crossed_asked, 0), 0) AS known,
    coalesce(n_both_good / nullif(n_said, 0), 0) AS both_good,
    coalesce(n_both_bad / nullif(n_said, 0), 0) AS both_bad,
    n_said + n_open AS n_asked,
    CASE WHEN (n_lo_won_lo_first + n_hi_won_lo_first) * (n_lo_won_hi_first + n_hi_won_hi_first) > 0 THEN 1 ELSE 0 END
      AS is_crossed
  FROM tables
),
sided AS (
  SELECT
    terms.*,
    CASE WHEN candidate IS NOT NULL THEN 1 WHEN list_kind IS NULL THEN 2 ELSE 3 END AS n_sides,
    CASE WHEN candidate IS NOT NULL OR sides.side = 3 THEN '' WHEN sides.side = 1 THEN item_lo ELSE item_hi END
      AS cluster_item,
    CASE WHEN candidate IS NULL AND list_kind IS NOT NULL AND sides.side < 3 THEN '' ELSE unit_id END AS cluster_unit
  FROM terms
  CROSS JOIN (VALUES (1), (2), (3)) AS sides (side)
  WHERE sides.side = 1 OR (candidate IS NULL AND (sides.side = 2 OR list_kind IS NOT NULL))
)
SELECT
  study, cell.*, cluster_unit, cluster_item,
  max(n_sides) AS n_sides,
  max(list_kind) AS list_kind,
  count(*) FILTER (WHERE status <> 'pending') AS n_pairs,
  count(*) FILTER (WHERE status = 'consistent_win') AS n_consistent_win,
  count(*) FILTER (WHERE status = 'consistent_tie') AS n_consistent_tie,
  count(*) FILTER (WHERE status = 'primacy') AS n_primacy,
  count(*) FILTER (WHERE status = 'recency') AS n_recency,
  count(*) FILTER (WHERE status = 'soft_primacy') AS n_soft_primacy,
  count(*) FILTER (WHERE status = 'soft_recency') AS n_soft_recency,
  count(*) FILTER (WHERE status = 'undecided' AND n_crossed_votes > 0) AS n_split,
  count(*) FILTER (WHERE status = 'undecided' AND n_crossed_votes = 0) AS n_undecided,
  count(*) FILTER (WHERE status = 'missing_reverse') AS n_missing_reverse,
  count(*) FILTER (WHERE status = 'pending') AS n_pairs_pending,
  count(*) FILTER (WHERE n_crossed_votes > 0) AS n_both,
  count(*) FILTER (WHERE win + flip > 0) AS n_decided,
  count(*) FILTER (WHERE n_crossed_votes > 0 AND is_repeated) AS n_repeated,
  sum(win) AS wins,
  sum(tie) AS ties,
  sum(flip) AS flips,
  sum(win * win) AS win_squares,
  sum(flip * flip) AS flip_squares,
  sum(win * flip) AS win_flips,
  sum((win + tie) * (win + tie)) AS agreed_squares,
  sum(CASE WHEN status <> 'pending' THEN win * known END) AS wins_least,
  sum(CASE WHEN status <> 'pending' THEN tie * known END) AS ties_least,
  sum(CASE WHEN status <> 'pending' THEN flip * known END) AS flips_least,
  sum(CASE WHEN status <> 'pending' THEN 1 - known END) AS left_open,
  bool_or(has_tie_kinds) AS has_tie_kinds,
  CAST(sum(n_both_good) AS BIGINT) AS n_both_good,
  CAST(sum(n_both_bad) AS BIGINT) AS n_both_bad,
  count(*) FILTER (WHERE n_said > 0) AS n_said,
  count(*) FILTER (WHERE n_asked > 0) AS n_asked,
  sum(both_good) AS both_good,
  sum(both_bad) AS both_bad,
  sum(both_good * both_good) AS both_good_squares,
  sum(both_bad * both_bad) AS both_bad_squares,
  sum(n_both_good / nullif(n_asked, 0)) AS both_good_least,
  sum(n_both_bad / nullif(n_asked, 0)) AS both_bad_least,
  sum(n_open / nullif(n_asked, 0)) AS unsaid,
  CAST(sum(is_crossed) AS BIGINT) AS n_crossed,
  count(*) FILTER (WHERE first_term + second_term > 0) AS n_terms,
  max(CASE WHEN first_term + second_term > 0 THEN n_votes END) AS votes_max,
  sum(first_term) AS first_won,
  sum(second_term) AS second_won,
  sum(first_term * first_term) AS first_squares,
  sum(second_term * second_term) AS second_squares,
  sum(first_term * second_term) AS products
FROM sided
GROUP BY study, cell, cluster_unit, cluster_item;
