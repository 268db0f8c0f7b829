-- grain: study, task, template_id, judge_a, judge_b, vote_a_1, vote_b_1, vote_a_2, vote_b_2, is_open_1, is_open_2
-- question: How often did one judge say this where another said that?
-- source: agreement_patterns; n_subjects items, or pairs of items with the two orders as _1 and _2 (NULL where one of
--   the two judges did not vote; two people have _1 alone, whichever order each saw). Judges a and b are two models, or two people under one template, a the lower in
--   binary order; or b is a reference: provider `human`, model `majority`, what people hold; provider `panel`, model
--   `others`, the word that all other models, at least two, say most, each of a judge's words for its part; all of
--   them where there are several, each in part, as such units are the hard ones. A majority that a judge helped to make would
--   flatter the judge. A vote of several words is as in
--   agreement_votes. is_open_1, is_open_2: both were asked, and what is unread or missing may still make two votes, or
--   others; NULL beside `others`. is_listed: the pairs are implied by models' lists; those of bests alone
--   are compared with people only, as two judges both name a pair more often where they agree.
--   clusters are those of the patterns, as lists of them.

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
    part[1] AS kind, judge_of(part[2], part[3], nullif(part[4], '')) AS judge,
    part[2] || chr(31) || part[3] || chr(31) || part[4] AS judge_key,
    nullif(part[5], '') AS vote_1, nullif(part[6], '') AS vote_2,
    part[7] = '1' AS is_open_1, part[8] = '1' AS is_open_2
  FROM split
),
-- each word of a vote has its part of it
spoken AS (
  SELECT pattern_no, judge_key, 1 AS place, string_split(vote_1, chr(30)) AS words
  FROM votes
  WHERE kind IN ('model', 'list') AND vote_1 IS NOT NULL
  UNION ALL
  SELECT pattern_no, judge_key, 2 AS place, string_split(vote_2, chr(30)) AS words
  FROM votes
  WHERE kind IN ('model', 'list') AND vote_2 IS NOT NULL
),
worded AS (
  SELECT pattern_no, judge_key, place, 1.0::DOUBLE / array_length(words) AS part, unnest(words) AS vote
  FROM spoken
),
by_judge AS MATERIALIZED (
  SELECT pattern_no, judge_key, place, vote, sum(part) AS n
  FROM worded
  GROUP BY pattern_no, judge_key, place, vote
),
by_vote AS (
  SELECT pattern_no, place, vote, sum(n) AS n
  FROM by_judge
  GROUP BY pattern_no, place, vote
),
-- what the others say once this judge's own vote is taken away
elsewhere AS (
  SELECT
    spoken.pattern_no, spoken.judge_key, spoken.place, by_vote.vote,
    by_vote.n - coalesce(by_judge.n, 0) AS n
  FROM spoken
  JOIN by_vote
    ON by_vote.pattern_no = spoken.pattern_no
    AND by_vote.place = spoken.place
  LEFT JOIN by_judge
    ON by_judge.pattern_no = spoken.pattern_no
    AND by_judge.judge_key = spoken.judge_key
    AND by_judge.place = spoken.place
    AND by_judge.vote = by_vote.vote
),
compared AS (
  SELECT
    *,
    max(n) OVER (PARTITION BY pattern_no, judge_key, place) - 1e-9 AS n_top,
    sum(n) OVER (PARTITION BY pattern_no, judge_key, place) AS n_others
  FROM elsewhere
),
others AS (
  SELECT
    pattern_no, judge_key, place,
    array_to_string(list_sort(list(vote) FILTER (WHERE n > n_top)), chr(30)) AS vote
  FROM compared
  WHERE n_others > 1.5
  GROUP BY pattern_no, judge_key, place
),
others_by_judge AS (
  SELECT
    pattern_no, judge_key, judge_of('panel', 'others', 'none') AS panel,
    max(CASE WHEN place = 1 THEN vote END) AS vote_1,
    max(CASE WHEN place = 2 THEN vote END) AS vote_2
  FROM others
  GROUP BY pattern_no, judge_key
),
paired AS (
  SELECT
    a.pattern_no, a.study, a.task, a.template_id, a.n_subjects,
    as_judge_a(a.judge) AS judge_a, as_judge_b(b.judge) AS judge_b,
    a.vote_1 AS vote_a_1, b.vote_1 AS vote_b_1, a.vote_2 AS vote_a_2, b.vote_2 AS vote_b_2,
    (a.is_open_1 OR b.is_open_1) AND (a.is_open_1 OR a.vote_1 IS NOT NULL) AND (b.is_open_1 OR b.vote_1 IS NOT NULL)
      AS is_open_1,
    (a.is_open_2 OR b.is_open_2) AND (a.is_open_2 OR a.vote_2 IS NOT NULL) AND (b.is_open_2 OR b.vote_2 IS NOT NULL)
      AS is_open_2,
    a.kind IN ('list', 'best') AS is_listed
  FROM votes AS a
  JOIN votes AS b
    ON b.pattern_no = a.pattern_no
    AND ((b.kind = a.kind AND b.judge_key > a.judge_key AND a.kind <> 'best')
      OR (a.kind IN ('model', 'list', 'best') AND b.kind = 'truth'))
  UNION ALL
  SELECT
    a.pattern_no, a.study, a.task, a.template_id, a.n_subjects, as_judge_a(a.judge), as_judge_b(b.panel),
    a.vote_1, b.vote_1, a.vote_2, b.vote_2, CAST(NULL AS BOOLEAN), CAST(NULL AS BOOLEAN), a.kind = 'list'
  FROM votes AS a
  JOIN others_by_judge AS b
    ON b.pattern_no = a.pattern_no
    AND b.judge_key = a.judge_key
  WHERE a.kind IN ('model', 'list')
),
both_voted AS (
  SELECT
    pattern_no, study, task, template_id, n_subjects, judge_a, judge_b,
    CASE WHEN vote_b_1 IS NOT NULL THEN vote_a_1 END AS vote_a_1,
    CASE WHEN vote_a_1 IS NOT NULL THEN vote_b_1 END AS vote_b_1,
    CASE WHEN vote_b_2 IS NOT NULL THEN vote_a_2 END AS vote_a_2,
    CASE WHEN vote_a_2 IS NOT NULL THEN vote_b_2 END AS vote_b_2,
    is_open_1, is_open_2, is_listed
  FROM paired
)
SELECT
  both_voted.study, both_voted.task, both_voted.template_id,
  judge_a.*, judge_b.*,
  vote_a_1, vote_b_1, vote_a_2, vote_b_2, is_open_1, is_open_2,
  bool_or(is_listed) AS is_listed,
  CAST(sum(both_voted.n_subjects) AS BIGINT) AS n_subjects,
  list_sort(list(patterns.clusters)) AS clusters
FROM both_voted
JOIN patterns
  ON patterns.pattern_no = both_voted.pattern_no
WHERE vote_a_1 IS NOT NULL OR vote_a_2 IS NOT NULL OR is_open_1 OR is_open_2
GROUP BY
  both_voted.study, both_voted.task, both_voted.template_id,
  judge_a, judge_b,
  vote_a_1, vote_b_1, vote_a_2, vote_b_2, is_open_1, is_open_2;
