SELECT turns.*, labels.label, labels.outcome, labels.confidence, labels.explanation, labels.template_id,
    labels.repeat_no
FROM turns
LEFT JOIN labels
    ON labels.item = turns.item_id AND labels.candidate = turns.candidate
    AND labels.provider = $provider AND labels.request_model = $model AND labels.origin <> 'simulated'
    AND labels.repeat_no = 1
WHERE turns.n_texts = 1 AND turns.candidate = $candidate
    AND turns.unit_id IN (SELECT unit_id FROM labels WHERE provider = $provider AND request_model = $model)
ORDER BY turns.unit_id, turns.tactic, turns.turn_no
