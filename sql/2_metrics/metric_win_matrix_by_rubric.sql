-- grain: study, cell, candidate_a, candidate_b
-- question: On one statement, which of two candidate models does a judge prefer, counting only what holds in both
--   orders?
-- source: candidate_pairs; a win counts only when the two orders name the same winner. n_both pairs have votes in both
--   orders: wins, true ties and inconsistent ones, by majorities of repeats, of n_prompts prompts. A pair with an order missing
--   or failed is n_missing, never a tie. Rates are of all votes of one order with those of the other (part_a, part_b,
--   part_tie), so that a pair on which repeats split counts in part, and asking more often moves none.
-- estimators:
--   - consistency: wins and true ties, of n_both; Wilson, with several pairs of a prompt, or repeats that split,
--     wilson_clustered by prompts, each one observation where they show no spread
--   - consistency_min, consistency_max: what the n_missing pairs leave open, of n_pairs: none of them holds, or all do
--   - win_rate_half: gives a tie or what is inconsistent to each by half, of n_both; the interval is p_sign's: 1/2 is
--     outside exactly where p_sign is below 0.05
--   - win_rate_half_min, win_rate_half_max: what the n_missing pairs leave open, of n_pairs: all lost by a, or all won
--   - net: (wins a - wins b) / n_both
--   - p_sign: sign test of the wins, its interval matched_difference; where a model has several outputs for a prompt,
--     whose pairs are no draws of their own, or repeats split, the sign-flip test of the prompts' leads (sign_flip_z) and
--     its inversion (sign_flip_ratio)
--   - sign_mde: the smallest share of wins that the sign test finds with power 0.8
-- reference: SpecEval (a win: rank_AB = -rank_BA); matched_difference, sign_test_mde, clustered, wilson_clustered.
-- nulls: a rate is NULL where n_both is 0, p_sign without a win, sign_mde where so few wins reveal no share. With several
--   pairs of a prompt, or repeats that split: what is of consistency below 5 prompts, p_sign and the interval of win_rate_half below 6 that have
--   a lead, that interval also where all prompts have the same one or a few hold nearly all pairs, and sign_mde.

CREATE OR REPLACE VIEW metric_win_matrix_by_rubric AS
WITH by_prompt AS (
  SELECT
    study, cell(candidate_pairs) AS cell, candidate_a, candidate_b,
    coalesce(nullif(unit_id, ''), item_a || chr(31) || item_b) AS prompt,
    count(*) FILTER (WHERE winner <> 'pending') AS n_pairs,
    count(part_a) AS n_both,
    count(*) FILTER (WHERE winner = 'a') AS n_wins_a,
    count(*) FILTER (WHERE winner = 'b') AS n_wins_b,
    count(*) FILTER (WHERE winner = 'tie') AS n_true_ties,
    count(*) FILTER (WHERE winner = 'inconsistent') AS n_inconsistent,
    count(*) FILTER (WHERE winner = 'missing') AS n_missing,
    count(*) FILTER (WHERE winner = 'pending') AS n_pairs_pending,
    coalesce(sum(part_a - part_b), 0) AS lead,
    coalesce(sum(part_a + part_b + part_tie), 0) AS n_held,
    coalesce(sum(power(part_a + part_b + part_tie, 2)), 0) AS held_squares
  FROM candidate_pairs
  GROUP BY study, cell, candidate_a, candidate_b, prompt
),
counts AS (
  SELECT
    study, cell, candidate_a, candidate_b,
    CAST(sum(n_pairs) AS BIGINT) AS n_pairs,
    CAST(sum(n_both) AS BIGINT) AS n_both,
    count(*) FILTER (WHERE n_both > 0) AS n_prompts,
    CAST(sum(n_wins_a) AS BIGINT) AS n_wins_a,
    CAST(sum(n_wins_b) AS BIGINT) AS n_wins_b,
    CAST(sum(n_true_ties) AS BIGINT) AS n_true_ties,
    CAST(sum(n_inconsistent) AS BIGINT) AS n_inconsistent,
    CAST(sum(n_missing) AS BIGINT) AS n_missing,
    CAST(sum(n_pairs_pending) AS BIGINT) AS n_pairs_pending,
    -- a draw for each prompt, that is won or lost or neither, and that holds or does not
    max(n_both) <= 1 AND sum(lead * lead) = count(*) FILTER (WHERE lead <> 0) AS is_one_win,
    max(n_both) <= 1 AND sum(n_held * n_held) = sum(n_held) AS is_one_vote,
    count(*) FILTER (WHERE lead <> 0) AS n_leads,
    round(sum(lead), 12) AS lead,
    round(sum(n_held), 12) AS n_held,
    sum(held_squares) AS held_squares,
    sum(lead * lead) AS lead_lead,
    sum(lead * n_both) AS lead_both,
    sum(CAST(n_both AS DOUBLE) * n_both) AS both_both,
    sum(n_held * n_held) AS held_held,
    sum(n_held * n_both) AS held_both
  FROM by_prompt
  GROUP BY study, cell, candidate_a, candidate_b
),
rated AS (
  SELECT
    *,
    n_held / nullif(n_both, 0) AS consistency
  FROM counts
),
spread AS (
  SELECT
    *,
    CASE WHEN n_prompts > 1
         THEN sqrt(greatest(0.0, held_held - 2 * consistency * held_both + consistency * consistency * both_both)
           * n_prompts / (n_prompts - 1)) / n_both END AS consistency_se,
    CASE WHEN held_squares - consistency * n_held > 1e-9 THEN sqrt(held_squares - consistency * n_held) / n_both END
      AS held_by_pair
  FROM rated
),
sized AS (
  SELECT
    *,
    CASE WHEN consistency_se > 1e-9 THEN mean_size(consistency, n_both, held_by_pair) ELSE n_prompts END AS n_most
  FROM spread
),
bounded AS (
  SELECT
    *,
    CASE WHEN is_one_win THEN matched_difference(n_wins_a, n_wins_b, n_both)
         WHEN n_leads >= 6 THEN sign_flip_ratio(lead, n_both, lead_lead, lead_both, both_both) END AS ends,
    sign_flip_z(lead, 0, lead_lead, 0, 0) AS leads_z,
    wilson_clustered(consistency, n_most, consistency_se, n_prompts) AS consistency_ends
  FROM sized
)
SELECT
  study, cell.*, candidate_a, candidate_b,
  n_pairs,
  n_both,
  n_prompts,
  n_wins_a,
  n_wins_b,
  n_true_ties,
  n_inconsistent,
  n_missing,
  n_pairs_pending,
  consistency,
  CASE WHEN is_one_vote THEN wilson_lo(n_held, n_both) ELSE consistency_ends.lo END AS consistency_lo,
  CASE WHEN is_one_vote THEN wilson_hi(n_held, n_both) ELSE consistency_ends.hi END AS consistency_hi,
  n_held / nullif(n_pairs, 0) AS consistency_min,
  (n_held + n_missing) / nullif(n_pairs, 0) AS consistency_max,
  (n_both + lead) / nullif(2 * n_both, 0) AS win_rate_half,
  0.5 + share_difference(ends.lo) / 2 AS win_rate_half_lo,
  0.5 + share_difference(ends.hi) / 2 AS win_rate_half_hi,
  (n_both + lead) / nullif(2 * n_pairs, 0) AS win_rate_half_min,
  (n_both + lead + 2 * n_missing) / nullif(2 * n_pairs, 0) AS win_rate_half_max,
  lead / nullif(n_both, 0) AS net,
  CASE WHEN is_one_win THEN binom_test_half(n_wins_a, n_wins_a + n_wins_b)
       WHEN n_leads >= 6 THEN normal_two_sided(leads_z) END AS p_sign,
  CASE WHEN is_one_win THEN sign_test_mde(n_wins_a + n_wins_b) END AS sign_mde
FROM bounded;
