-- The rows of a staged file that another stage of the version has: the same request, asked of the same judge about the same.
SELECT new.file_row_number AS place
FROM read_parquet({path}, file_row_number = true) AS new
SEMI JOIN plan AS other
  ON other.study = $study AND other.study_version = $version AND other.stage <> $stage AND other.task = new.task
  AND other.purpose IS DISTINCT FROM 'shared'
  AND other.request_id = new.request_id AND other.template_id = new.template_id AND other.rubric_id = new.rubric_id
  AND other.thinking = new.thinking AND other.unit_id = new.unit_id AND other.item_first = new.item_first
  AND other.item_second IS NOT DISTINCT FROM new.item_second AND other.turn_no IS NOT DISTINCT FROM new.turn_no
  AND other.pair_id IS NOT DISTINCT FROM new.pair_id
WHERE new.purpose IS NULL
ORDER BY place
