-- The first row of each judgment that the lake lacks, in the order given, with a digest of what it says.
CREATE TEMP TABLE new_rows AS
SELECT
  import_key, {columns},
  sha256(concat(
    import_key, word, prefixed(confidence), prefixed(input_tokens), prefixed(output_tokens), prefixed(cost_usd)
  )) AS row_digest
FROM keyed
WHERE import_key NOT IN (SELECT import_key FROM known)
  AND line_no IN (SELECT min(line_no) FROM keyed GROUP BY import_key)
ORDER BY line_no
