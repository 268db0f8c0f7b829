-- grain: study, template_id, rubric_id, provider, request_model, thinking
-- question: Does a judge prefer the longer of two texts?
-- source: the consistent wins of pair_status with the texts' lengths (item_lengths). An empty text counts as one
--   character.
-- estimators:
--   - longer_win_rate: wins of the longer text of the pairs with different lengths, Wilson
--   - p_longer: sign test of n_longer_won against n_shorter_won
--   - longer_mde: the smallest share that the test finds with power 0.8
--   - log_length_ratio: mean of ln(length of winner / length of loser) with a t interval; above 0 the winner is longer
--   - length_correlation: correlation of winning (+1, -1) with the log ratio, through the origin, which is the same
--     whichever item is called the first
-- reference: own definitions; binomial, sign_test_mde.
-- nulls: longer_win_rate and p_longer are NULL where no pair differs in length, longer_mde where so few pairs reveal no
--   share, the interval of log_length_ratio below 2 pairs, length_correlation where every log ratio is 0.
-- note: longer texts may be better texts: this says what goes with winning, not what the judge looks at. Pairs are
--   taken for independent.

CREATE OR REPLACE VIEW metric_length AS
WITH won AS (
  SELECT
    pair_status.study, pair_status.template_id, pair_status.rubric_id, pair_status.provider,
    pair_status.request_model, pair_status.thinking,
    -- not greatest(), which takes a length that is not known for 1
    ln(CASE winner.n_chars WHEN 0 THEN 1 ELSE winner.n_chars END)
      - ln(CASE loser.n_chars WHEN 0 THEN 1 ELSE loser.n_chars END) AS log_ratio,
    winner.n_chars - loser.n_chars AS difference
  FROM pair_status
  LEFT JOIN item_lengths AS winner
    ON winner.study = pair_status.study
    AND winner.item = CASE pair_status.majority_lo_first WHEN 'lo' THEN pair_status.item_lo ELSE pair_status.item_hi END
  LEFT JOIN item_lengths AS loser
    ON loser.study = pair_status.study
    AND loser.item = CASE pair_status.majority_lo_first WHEN 'lo' THEN pair_status.item_hi ELSE pair_status.item_lo END
  WHERE pair_status.status = 'consistent_win'
),
sums AS (
  SELECT
    study, template_id, rubric_id, provider, request_model, thinking,
    count(difference) AS n_pairs,
    count(*) - count(difference) AS n_no_length,
    count(*) FILTER (WHERE difference > 0) AS n_longer_won,
    count(*) FILTER (WHERE difference < 0) AS n_shorter_won,
    count(*) FILTER (WHERE difference = 0) AS n_same_length,
    avg(log_ratio) AS log_length_ratio,
    stddev_samp(log_ratio) AS log_length_ratio_sd,
    sum(log_ratio * log_ratio) AS squares
  FROM won
  GROUP BY study, template_id, rubric_id, provider, request_model, thinking
),
staged AS (
  SELECT *, t_quantile(0.975, n_pairs - 1) AS t
  FROM sums
)
SELECT
  study, template_id, rubric_id, provider, request_model, thinking,
  n_pairs, n_no_length, n_longer_won, n_shorter_won, n_same_length,
  n_longer_won / nullif(n_longer_won + n_shorter_won, 0) AS longer_win_rate,
  wilson_lo(n_longer_won, n_longer_won + n_shorter_won) AS longer_win_rate_lo,
  wilson_hi(n_longer_won, n_longer_won + n_shorter_won) AS longer_win_rate_hi,
  binom_test_half(n_longer_won, n_longer_won + n_shorter_won) AS p_longer,
  sign_test_mde(n_longer_won + n_shorter_won) AS longer_mde,
  log_length_ratio,
  log_length_ratio_sd / sqrt(nullif(n_pairs, 0)) AS log_length_ratio_se,
  log_length_ratio - t * log_length_ratio_sd / sqrt(nullif(n_pairs, 0))
    AS log_length_ratio_lo,
  log_length_ratio + t * log_length_ratio_sd / sqrt(nullif(n_pairs, 0))
    AS log_length_ratio_hi,
  log_length_ratio * sqrt(n_pairs / nullif(squares, 0)) AS length_correlation
FROM staged;
