-- The places of staged plan rows that a version does not have yet.
SELECT file_row_number AS place FROM read_parquet({path}, file_row_number = TRUE) AS staged
WHERE NOT EXISTS (
  SELECT 1 FROM plan WHERE plan.study = $study AND plan.study_version = $version AND plan.cell_id = staged.cell_id
    AND plan.item_first = staged.item_first AND plan.item_second IS NOT DISTINCT FROM staged.item_second
    AND plan.turn_no IS NOT DISTINCT FROM staged.turn_no AND plan.repeat_no = staged.repeat_no
    AND (plan.task <> 'listwise' OR (plan.pair_id = staged.pair_id AND plan.direction = staged.direction))
)
