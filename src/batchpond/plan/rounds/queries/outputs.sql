-- The outputs of a stage, each with the question that it answers.
{chosen}
SELECT chosen.unit_id, nullif(chosen.rubric_id, '') AS rubric_id, chosen.candidate_first AS candidate, chosen.repeat_no,
       chosen.text, items.text AS input_text, items.metadata
FROM chosen JOIN items ON items.item_hash = chosen.item_first_hash
ORDER BY ALL
