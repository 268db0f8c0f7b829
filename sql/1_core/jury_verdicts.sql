-- grain: study, task, rubric_id, unit_id, item_lo, item_hi, turn_no
-- question: What do all judges of a study together hold of each item, or pair of items, as one verdict?
-- source: pair_status and item_status, of every unit that at least two judges were asked about; a judge is a template
--   with its judge (cell), people are none. Its word on a pair is what it holds in both orders (`lo`,
--   `hi`, `tie`: the consistent statuses), so that no position is in it; on an item it is its verdict or label.
--   n_judges = n_spoke + n_silent (answered, but flipped, undecided, or asked in one order alone) + n_pending.
--   majority: the word of more than half of the judges that spoke (Condorcet 1785); a drawn vote, and a mere plurality,
--   is NULL. share: the largest share of them that said the same. weighted: the word with the largest sum of weights, a
--   judge's being ln(p / (1 - p)), optimal for independent judges and two words (Nitzan and Paroush 1982), p its
--   accuracy by people's labels in the same study, task and rubric, (n_right + 1) / (n + 2) (Laplace's rule of
--   succession), this unit's label left out: no label helps to foretell itself. Below p = 1/2 a judge speaks against
--   its word; a judge without labels weighs 0. Where no judge that spoke has a label elsewhere (is_weighted is false)
--   all weigh the same. weighted is NULL where sums are equal, and where none is above 0: never a word nobody said.
--   All are NULL where fewer than two spoke. judges has each judge's word, and weight where labels give one; truth and
--   truth_words are what people say (`truths`): a word on which they are split is right in part (truth_part); label_weight
--   is that label's, which moves no verdict: for those all labels count alike.
--   is_of_unit: what is judged is models' outputs, drawn with their prompt, or pairs of a
--   list, which share its answers.
-- Scores have no majority: likert is left out, and answers that are a score alone; the mean is `panel` in item_status.

CREATE OR REPLACE VIEW jury_verdicts AS
WITH words AS (
  SELECT
    study, 'pair' AS task, template_id, rubric_id, judge(pair_status) AS judge, unit_id, item_lo, item_hi,
    CAST(NULL AS BIGINT) AS turn_no,
    CASE WHEN status IN ('consistent_win', 'consistent_tie') THEN majority_lo_first END AS word,
    status = 'pending' AS is_pending,
    coalesce(candidate_lo, candidate_hi) IS NOT NULL OR list_kind IS NOT NULL AS is_of_unit
  FROM pair_status
  WHERE provider <> 'human'
  UNION ALL
  SELECT
    study, task, template_id, rubric_id, judge(item_status) AS judge, unit_id, item, CAST(NULL AS VARCHAR),
    turn_no,
    CASE WHEN count(*) = count(value) AND min(value) = max(value) THEN min(value) END,
    bool_or(status = 'pending'),
    max(candidate) IS NOT NULL AND unit_id <> ''
  FROM item_status
  WHERE provider NOT IN ('human', 'panel') AND task <> 'likert'
  GROUP BY study, task, template_id, rubric_id, judge, unit_id, item, turn_no
  HAVING count(value) > 0 OR count(score) = 0
),
labelled AS MATERIALIZED (
  SELECT words.*, truths.truth, truths.truth_words, truths.weight AS label_weight, truth_part(words.word, truths.truth_words) AS right_part
  FROM words
  LEFT JOIN truths
    ON truths.study = words.study
    AND truths.task = words.task
    AND truths.rubric_id = words.rubric_id
    AND truths.unit_id = words.unit_id
    AND truths.item_lo = words.item_lo
    AND coalesce(truths.item_hi, '') = coalesce(words.item_hi, '')
    AND coalesce(truths.turn_no, -1) = coalesce(words.turn_no, -1)
),
accuracies AS (
  SELECT
    study, task, template_id, rubric_id, judge,
    count(*) AS n,
    sum(right_part) AS n_right
  FROM labelled
  WHERE right_part IS NOT NULL
  GROUP BY study, task, template_id, rubric_id, judge
),
-- how a judge did on the labels of all other units
-- who judges alone is no jury
juries AS (
  SELECT study, task, rubric_id
  FROM (SELECT DISTINCT study, task, rubric_id, template_id, judge FROM labelled) AS judges
  GROUP BY study, task, rubric_id
  HAVING count(*) > 1
),
elsewhere AS (
  SELECT
    labelled.*,
    coalesce(accuracies.n, 0) - CASE WHEN right_part IS NULL THEN 0 ELSE 1 END AS n_elsewhere,
    round(coalesce(accuracies.n_right, 0) - coalesce(right_part, 0), 9) AS right_elsewhere
  FROM labelled
  JOIN juries
    ON juries.study = labelled.study
    AND juries.task = labelled.task
    AND juries.rubric_id = labelled.rubric_id
  LEFT JOIN accuracies
    ON accuracies.study = labelled.study
    AND accuracies.task = labelled.task
    AND accuracies.template_id = labelled.template_id
    AND accuracies.rubric_id = labelled.rubric_id
    AND accuracies.judge = labelled.judge
),
weighed AS (
  SELECT
    *,
    CASE WHEN n_elsewhere > 0
         THEN ln((right_elsewhere + 1) / CAST(n_elsewhere - right_elsewhere + 1 AS DOUBLE)) END AS weight
  FROM elsewhere
),
by_word AS (
  SELECT
    study, task, rubric_id, unit_id, item_lo, item_hi, turn_no, word,
    count(*) AS n,
    count(*) FILTER (WHERE is_pending) AS n_pending,
    count(weight) AS n_weighted,
    coalesce(sum(weight), 0) AS weight,
    max(truth) AS truth,
    max(truth_words) AS truth_words,
    max(label_weight) AS label_weight,
    bool_or(is_of_unit) AS is_of_unit,
    list(juror(template_id, judge, word, weight)) AS judges
  FROM weighed
  GROUP BY study, task, rubric_id, unit_id, item_lo, item_hi, turn_no, word
),
units AS (
  SELECT
    study, task, rubric_id, unit_id, item_lo, item_hi, turn_no,
    CAST(sum(n) AS BIGINT) AS n_judges,
    CAST(coalesce(sum(n) FILTER (WHERE word IS NOT NULL), 0) AS BIGINT) AS n_spoke,
    CAST(sum(n_pending) AS BIGINT) AS n_pending,
    coalesce(sum(n_weighted) FILTER (WHERE word IS NOT NULL), 0) > 0 AS is_weighted,
    arg_max(word, n) FILTER (WHERE word IS NOT NULL) AS most_said,
    list_reverse_sort(list(n) FILTER (WHERE word IS NOT NULL)) AS counts,
    arg_max(word, weight) FILTER (WHERE word IS NOT NULL) AS heaviest,
    list_reverse_sort(list(weight) FILTER (WHERE word IS NOT NULL)) AS weights,
    max(truth) AS truth,
    max(truth_words) AS truth_words,
    max(label_weight) AS label_weight,
    bool_or(is_of_unit) AS is_of_unit,
    list_sort(flatten(list(judges))) AS judges
  FROM by_word
  GROUP BY study, task, rubric_id, unit_id, item_lo, item_hi, turn_no
  HAVING sum(n) > 1
)
SELECT
  study, task, rubric_id, unit_id, item_lo, item_hi, turn_no,
  n_judges,
  n_spoke,
  n_judges - n_spoke - n_pending AS n_silent,
  n_pending,
  CASE WHEN n_spoke > 1 AND 2 * counts[1] > n_spoke THEN most_said END AS majority,
  CASE WHEN n_spoke > 1 THEN counts[1] / CAST(n_spoke AS DOUBLE) END AS share,
  -- sums in another order differ in their last digits
  CASE WHEN n_spoke < 2 THEN NULL
       WHEN is_weighted AND weights[1] > greatest(coalesce(weights[2], 0.0), 0.0) + 1e-9 THEN heaviest
       WHEN NOT is_weighted AND counts[1] > coalesce(counts[2], 0) THEN most_said END AS weighted,
  is_weighted,
  truth,
  truth_words,
  label_weight,
  is_of_unit,
  judges
FROM units;
