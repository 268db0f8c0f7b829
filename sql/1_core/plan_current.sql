-- grain: study, slot
-- question: Which requests does the current version of each study plan, and where in its grid does each stand?
-- source: the rows of `plan` whose version is the one in studies_current. parser_id is the name that judgments by the
--   study's reader have: what `plan` has for reader 1, and with the reader's number for a later one. A list has a row for
--   each of its items, with the list's id, the same in either direction, and the item's place in list_id and list_place
--   (pair_id and turn_no of `plan`, which are NULL here).
CREATE OR REPLACE VIEW plan_current AS
SELECT
  plan.study, plan.study_version, plan.slot, plan.request_id,
  CASE WHEN studies_current.reader > 1 THEN plan.parser_id || '-r' || studies_current.reader ELSE plan.parser_id END
    AS parser_id,
  plan.task, plan.stage, plan.round_no, plan.mode, plan.cell_id, plan.template_id, plan.template_hash, plan.rubric_id,
  plan.rubric_hash, plan.provider, plan.endpoint, plan.request_model, plan.thinking, plan.unit_id,
  CASE WHEN plan.task <> 'listwise' THEN plan.pair_id END AS pair_id,
  plan.item_first, plan.item_second, plan.item_first_hash, plan.item_second_hash, plan.candidate_first,
  plan.candidate_second, CASE WHEN plan.task <> 'listwise' THEN plan.turn_no END AS turn_no, plan.direction,
  plan.is_lo_first, plan.repeat_no, plan.purpose, plan.gain, plan.tier,
  CASE WHEN plan.task = 'listwise' THEN plan.pair_id END AS list_id,
  CASE WHEN plan.task = 'listwise' THEN plan.turn_no END AS list_place
FROM plan
JOIN studies_current
  ON studies_current.study = plan.study
  AND studies_current.study_version = plan.study_version;
