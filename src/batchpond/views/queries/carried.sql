-- Of each row of `results` what another lake could not know of it: what its criterion gives, and how long its texts are.
-- By their hashes, so that a few rows cost little.
*,
(SELECT max(rubrics.points) FROM rubrics
  WHERE rubrics.rubric_hash = results.rubric_hash AND rubrics.rubric_id = results.rubric_id) AS points,
(SELECT max(length(items.text)) FROM items
  WHERE items.item_hash = results.item_first_hash AND items.item_id = results.item_first) AS n_chars_first,
(SELECT max(length(items.text)) FROM items
  WHERE items.item_hash = results.item_second_hash AND items.item_id = results.item_second) AS n_chars_second
