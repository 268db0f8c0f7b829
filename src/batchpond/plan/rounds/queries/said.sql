-- What was said in the conversations of a stage, turn by turn, and which turns a condition chooses.
SELECT results.unit_id, results.rubric_id AS tactic_id, results.candidate_first AS candidate, results.turn_no,
       results.text, items.text AS question, items.metadata, coalesce((
         $where
       ), FALSE) AS is_chosen
FROM results JOIN items ON items.item_hash = results.item_first_hash
WHERE results.study = $study AND results.stage = $stage AND {good}
ORDER BY results.turn_no, results.unit_id, results.rubric_id, results.candidate_first
