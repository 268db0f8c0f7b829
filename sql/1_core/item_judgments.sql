-- grain: study, task, template_id, rubric_id, provider, request_model, thinking, unit_id, item, candidate, turn_no,
--   repeat_no
-- question: What did each judge say about each single item?
-- source: the rows of results, and imported judgments, of the tasks that judge one item at a time: compliance, likert,
--   pressure (the judges' labels) and prompts. candidate is the model whose output the item is, turn_no its level of
--   pressure. verdict is 'true' or 'false', label a word of the task, score a number on its scale; only with the
--   outcomes decided and tie do they count. What two stages ask of the
--   same judge about the same is one answer, and one row. outcome is NULL while a request is not answered.
-- Human labels are imported with provider `human`; they are judgments like any other, and `truths` is made of them. An
-- imported row without an item id is known by its candidate, unit and turn.
CREATE OR REPLACE VIEW item_judgments AS
SELECT
  study,
  task,
  template_id,
  rubric_id,
  provider,
  request_model,
  thinking,
  unit_id,
  item_first AS item,
  candidate_first AS candidate,
  CAST(turn_no AS BIGINT) AS turn_no,
  repeat_no,
  verdict,
  outcome,
  label,
  score,
  confidence,
  input_tokens,
  output_tokens,
  cost_usd,
  origin
FROM results
WHERE task IN ('compliance', 'likert', 'pressure', 'prompts')
  AND item_second IS NULL
  AND item_first IS NOT NULL
  AND coalesce(purpose, '') <> 'shared'
UNION ALL
SELECT
  study,
  task,
  template_id,
  rubric_id,
  provider,
  request_model,
  thinking,
  unit_id,
  coalesce(item_first, candidate_first) AS item,
  candidate_first AS candidate,
  CAST(turn_no AS BIGINT) AS turn_no,
  repeat_no,
  verdict,
  outcome,
  label,
  score,
  confidence,
  input_tokens,
  output_tokens,
  cost_usd,
  coalesce(origin, 'imported') AS origin
FROM imported_judgments
WHERE task IN ('compliance', 'likert', 'pressure', 'prompts')
  AND item_second IS NULL
  AND coalesce(purpose, '') <> 'shared';
