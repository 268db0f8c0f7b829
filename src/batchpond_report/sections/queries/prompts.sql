SELECT DISTINCT templates.template_id AS title, left(templates.text, 4000) AS text,
  greatest(length(templates.text) - 4000, 0) AS n_left_out
FROM plan_current
JOIN templates USING (template_hash)
WHERE study = {study}
ORDER BY title, text
