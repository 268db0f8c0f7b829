-- The study's items that have a value in a column of their own, given as NAME=VALUE.
SELECT item_id
FROM items
WHERE json_extract_string(metadata, '$."' || nullif(replace(split_part($column, '=', 1), '"', ''), '') || '"')
    = substr($column, strpos($column, '=') + 1)
  AND item_hash IN (SELECT unnest([item_first_hash, item_second_hash]) FROM plan_current WHERE study = $study)
