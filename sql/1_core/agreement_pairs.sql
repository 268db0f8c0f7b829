-- grain: study, task, template_id, provider_a, request_model_a, thinking_a, provider_b, request_model_b, thinking_b,
--   vote_a_1, vote_b_1, vote_a_2, vote_b_2, is_open_1, is_open_2
-- question: How often did one judge say this where another said that?
-- source: agreement_patterns; n_subjects items, or pairs of items with the two orders as _1 and _2 (NULL where one of
--   the two judges did not vote; two people have _1 alone, whichever order each saw). Judges a and b are two models, or two people under one template, a the lower in
--   binary order; or b is a reference: provider `human`, model `majority`, what people hold; provider `panel`, model
--   `others`, the majority of all other models, at least two and with a single most frequent vote. A majority that a
--   judge helped to make would flatter the judge. is_open_1, is_open_2: both were asked, and what is unread or missing
--   may still make two votes, or others; NULL beside `others`. clusters are those of the patterns, as lists of them.

CREATE OR REPLACE VIEW agreement_pairs AS
WITH patterns AS MATERIALIZED (
  SELECT * FROM agreement_patterns
),
listed AS (
  SELECT pattern_no, study, task, template_id, n_subjects, unnest(ballots) AS ballot
  FROM patterns
  WHERE array_length(ballots) > 1
),
split AS (
  SELECT pattern_no, study, task, template_id, n_subjects, string_split(ballot, chr(31)) AS part
  FROM listed
),
votes AS MATERIALIZED (
  SELECT
    pattern_no, study, task, template_id, n_subjects,
    part[1] AS kind, part[2] AS provider, part[3] AS request_model, nullif(part[4], '') AS thinking,
    part[2] || chr(31) || part[3] || chr(31) || part[4] AS judge,
    nullif(part[5], '') AS vote_1, nullif(part[6], '') AS vote_2,
    part[7] = '1' AS is_open_1, part[8] = '1' AS is_open_2
  FROM split
),
by_vote AS (
  SELECT pattern_no, 1 AS place, vote_1 AS vote, count(*) AS n
  FROM votes
  WHERE kind = 'model' AND vote_1 IS NOT NULL
  GROUP BY pattern_no, vote_1
  UNION ALL
  SELECT pattern_no, 2 AS place, vote_2 AS vote, count(*) AS n
  FROM votes
  WHERE kind = 'model' AND vote_2 IS NOT NULL
  GROUP BY pattern_no, vote_2
),
compared AS (
  SELECT *, max(n) OVER (PARTITION BY pattern_no, place) AS n_top
  FROM by_vote
),
tops AS (
  SELECT
    pattern_no, place,
    max(n_top) AS n_top,
    sum(n) AS n_votes,
    count(*) FILTER (WHERE n = n_top) AS n_tops,
    min(CASE WHEN n = n_top THEN vote END) AS top,
    max(CASE WHEN n = n_top THEN vote END) AS other_top,
    coalesce(max(CASE WHEN n < n_top THEN n END), 0) AS n_next
  FROM compared
  GROUP BY pattern_no, place
),
-- the most frequent vote once this judge's own is taken away
others AS (
  SELECT
    votes.pattern_no, votes.judge, tops.place,
    CASE WHEN tops.n_votes < 3 THEN NULL
         WHEN tops.n_tops = 1 AND vote <> tops.top THEN tops.top
         WHEN tops.n_tops = 1 AND tops.n_top - 1 > tops.n_next THEN tops.top
         WHEN tops.n_tops = 2 AND vote = tops.top THEN tops.other_top
         WHEN tops.n_tops = 2 AND vote = tops.other_top THEN tops.top END AS vote
  FROM (
    SELECT pattern_no, judge, 1 AS place, vote_1 AS vote FROM votes WHERE kind = 'model' AND vote_1 IS NOT NULL
    UNION ALL
    SELECT pattern_no, judge, 2 AS place, vote_2 AS vote FROM votes WHERE kind = 'model' AND vote_2 IS NOT NULL
  ) AS votes
  JOIN tops
    ON tops.pattern_no = votes.pattern_no
    AND tops.place = votes.place
),
others_by_judge AS (
  SELECT
    pattern_no, judge,
    max(CASE WHEN place = 1 THEN vote END) AS vote_1,
    max(CASE WHEN place = 2 THEN vote END) AS vote_2
  FROM others
  GROUP BY pattern_no, judge
),
paired AS (
  SELECT
    a.pattern_no, a.study, a.task, a.template_id, a.n_subjects, a.provider AS provider_a, a.request_model AS request_model_a,
    a.thinking AS thinking_a, b.provider AS provider_b, b.request_model AS request_model_b, b.thinking AS thinking_b,
    a.vote_1 AS vote_a_1, b.vote_1 AS vote_b_1, a.vote_2 AS vote_a_2, b.vote_2 AS vote_b_2,
    (a.is_open_1 OR b.is_open_1) AND (a.is_open_1 OR a.vote_1 IS NOT NULL) AND (b.is_open_1 OR b.vote_1 IS NOT NULL)
      AS is_open_1,
    (a.is_open_2 OR b.is_open_2) AND (a.is_open_2 OR a.vote_2 IS NOT NULL) AND (b.is_open_2 OR b.vote_2 IS NOT NULL)
      AS is_open_2
  FROM votes AS a
  JOIN votes AS b
    ON b.pattern_no = a.pattern_no
    AND ((b.kind = a.kind AND b.judge > a.judge) OR (a.kind = 'model' AND b.kind = 'truth'))
  UNION ALL
  SELECT
    a.pattern_no, a.study, a.task, a.template_id, a.n_subjects, a.provider, a.request_model, a.thinking, 'panel', 'others', 'none',
    a.vote_1, b.vote_1, a.vote_2, b.vote_2, CAST(NULL AS BOOLEAN), CAST(NULL AS BOOLEAN)
  FROM votes AS a
  JOIN others_by_judge AS b
    ON b.pattern_no = a.pattern_no
    AND b.judge = a.judge
  WHERE a.kind = 'model'
),
both_voted AS (
  SELECT
    pattern_no, study, task, template_id, n_subjects,
    provider_a, request_model_a, thinking_a, provider_b, request_model_b, thinking_b,
    CASE WHEN vote_b_1 IS NOT NULL THEN vote_a_1 END AS vote_a_1,
    CASE WHEN vote_a_1 IS NOT NULL THEN vote_b_1 END AS vote_b_1,
    CASE WHEN vote_b_2 IS NOT NULL THEN vote_a_2 END AS vote_a_2,
    CASE WHEN vote_a_2 IS NOT NULL THEN vote_b_2 END AS vote_b_2,
    is_open_1, is_open_2
  FROM paired
)
SELECT
  both_voted.study, both_voted.task, both_voted.template_id,
  provider_a, request_model_a, thinking_a, provider_b, request_model_b, thinking_b,
  vote_a_1, vote_b_1, vote_a_2, vote_b_2, is_open_1, is_open_2,
  CAST(sum(both_voted.n_subjects) AS BIGINT) AS n_subjects,
  list_sort(list(patterns.clusters)) AS clusters
FROM both_voted
JOIN patterns
  ON patterns.pattern_no = both_voted.pattern_no
WHERE vote_a_1 IS NOT NULL OR vote_a_2 IS NOT NULL OR is_open_1 OR is_open_2
GROUP BY
  both_voted.study, both_voted.task, both_voted.template_id,
  provider_a, request_model_a, thinking_a, provider_b, request_model_b, thinking_b,
  vote_a_1, vote_b_1, vote_a_2, vote_b_2, is_open_1, is_open_2;
