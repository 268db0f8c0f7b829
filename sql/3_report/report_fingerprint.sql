-- grain: study
-- question: Which facts does a report on a study rest on, as one number that changes with any of them?
-- source: the exclusive or of the MD5 of every planned row with what it came to, and of every imported judgment, so
--   that neither order nor file layout matters. Each row is hashed with its key, so no two cancel out. It tells data
--   apart that differ by accident; it is no proof against a forger.
CREATE OR REPLACE VIEW report_fingerprint AS
WITH facts AS (
  SELECT
    study,
    md5_number(concat_ws(
      chr(31), 'planned', study_version, slot, coalesce(request_id, chr(30)), coalesce(batch_id, chr(30)),
      coalesce(file_id, chr(30)), coalesce(CAST(line_number AS VARCHAR), chr(30)), request_state,
      coalesce(outcome, chr(30)), coalesce(verdict, chr(30)), coalesce(label, chr(30)),
      coalesce(CAST(score AS VARCHAR), chr(30)), coalesce(CAST(confidence AS VARCHAR), chr(30)),
      coalesce(CAST(input_tokens AS VARCHAR), chr(30)), coalesce(CAST(output_tokens AS VARCHAR), chr(30)),
      coalesce(CAST(cost_usd AS VARCHAR), chr(30))
    )) AS fact,
    0 AS is_imported
  FROM results
  UNION ALL
  SELECT
    study,
    md5_number(concat_ws(
      chr(31), 'imported', import_key, coalesce(outcome, chr(30)), coalesce(verdict, chr(30)),
      coalesce(label, chr(30)), coalesce(CAST(score AS VARCHAR), chr(30)), coalesce(CAST(confidence AS VARCHAR), chr(30)),
      coalesce(CAST(input_tokens AS VARCHAR), chr(30)), coalesce(CAST(output_tokens AS VARCHAR), chr(30)),
      coalesce(CAST(cost_usd AS VARCHAR), chr(30))
    )) AS fact,
    1 AS is_imported
  FROM imported_judgments
)
SELECT
  study,
  count(*) FILTER (WHERE is_imported = 0) AS n_planned,
  count(*) FILTER (WHERE is_imported = 1) AS n_imported,
  CAST(bit_xor(fact) AS VARCHAR) AS facts_xor
FROM facts
GROUP BY study;
