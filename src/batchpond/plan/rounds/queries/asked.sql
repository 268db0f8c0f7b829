-- The items that stages have asked about first.
SELECT DISTINCT item_first FROM plan_current WHERE study = $study AND list_contains($stages, stage)
